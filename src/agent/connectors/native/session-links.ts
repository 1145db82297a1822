import type { Duplex } from 'node:stream';
import type { ZodType } from 'zod';
import type { Channel } from '../../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser } from '../../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../../agent-protocol/credit-window.ts';
import { HeartbeatProbe } from '../../../agent-protocol/heartbeat.ts';
import { CommandAnswer, LinkTicket, StreamType, streamPrefix } from '../../../agent-protocol/messages.ts';
import { RpcCall } from '../../../agent-protocol/rpc.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { availableMemory, MemoryBudget } from '../../../lib/memory-budget.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { withSignal } from '../../../lib/time/deadline.ts';
import { redact } from '../gateway-error.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';

const SECOND_LINK_DEADLINE_MS = 10_000;
/** Milliseconds after an attempt to open a second link until the next one. */
const SECOND_LINK_RETRY_MS = 30_000;
const MIB = 1_048_576;
/** Bytes held for upstreams and for the gateway, or promised to it: an eighth of the memory within these bounds. */
const [LEAST_MEMORY, MOST_MEMORY] = [16 * MIB, 128 * MIB];

/** What later sessions resume from earlier ones. */
export interface Resumption {
  /** The gateway's id for this agent; it hands over the endpoints of earlier sessions with the same one. */
  clientId: string;
  tlsSession: Buffer | null;
}

export interface SessionLinkOptions extends Pick<GatewaySocketOptions, 'address' | 'dial' | 'ca' | 'time'> {
  authtoken: string;
  resumption: Resumption;
  clock: Clock;
  log: Log;
}

export interface LinkUser {
  /** A stream that the gateway opens. */
  accept(channel: Channel): void;
  lost(reason: string): void;
}

/**
 * The links of a session: one, or two equal ones while the first carries bulk. The gateway chooses a link for each stream of
 * a client. Requests to the gateway travel on the first.
 */
export class SessionLinks {
  readonly #over = new AbortController();
  readonly #memory = new MemoryBudget(Math.min(MOST_MEMORY, Math.max(LEAST_MEMORY, availableMemory() / 8)));
  #first: SessionLink;
  #second: SessionLink | null = null;
  /** The largest window of a stream; 0: that of the protocol. */
  #window = 0;
  #mayHaveTwoLinks = false;
  /** When the last attempt to open a second link began, in milliseconds of `performance.now()`. */
  #secondTriedAt = Number.NEGATIVE_INFINITY;

  constructor(
    socket: Duplex,
    private readonly options: SessionLinkOptions,
    private readonly user: LinkUser,
  ) {
    this.#first = this.#linkOver(socket);
  }

  /** Aborts when the last link has ended. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get first(): Connection {
    return this.#first.connection;
  }

  /** Uses the extensions that the gateway supports. */
  extend({ StreamWindow, SecondLink }: { StreamWindow: number; SecondLink: boolean }): void {
    this.#window = Math.min(StreamWindow, LARGEST_WINDOW);
    this.#first.connection.extend(this.#window);
    this.#mayHaveTwoLinks = SecondLink;
  }

  /** Sends a request; resolves to the gateway's answer. The gateway opens streams to an endpoint once it is processed. */
  async call<T>(type: number, body: object, schema: ZodType<T>): Promise<T> {
    const link = this.#first;
    try {
      return await call(link.connection, type, body, schema);
    } catch (error) {
      // The gateway may have done it, or not.
      if (link !== this.#first) this.close('a connection was lost that carried a request');
      throw error;
    }
  }

  tick(): void {
    for (const link of this.#links) link.tick();
  }

  /** Resolves once the gateway has everything that was sent, or after so many milliseconds. */
  async delivered(ms: number): Promise<void> {
    await Promise.all(this.#links.map((link) => link.delivered(ms)));
  }

  close(reason: string): void {
    for (const link of this.#links) link.connection.close(new Error(reason));
  }

  get #links(): SessionLink[] {
    return this.#second === null ? [this.#first] : [this.#first, this.#second];
  }

  #linkOver(socket: Duplex): SessionLink {
    const user = {
      accept: (channel: Channel) => this.user.accept(channel),
      carriesBulk: () => this.#wantSecond(),
      ended: (reason: Error) => this.#lose(link, reason),
    };
    const link: SessionLink = new SessionLink(socket, user, this.#memory);
    link.connection.extend(this.#window);
    return link;
  }

  /** New streams take the second link while the first carries bulk. Without one, they share the first. */
  #wantSecond(): void {
    const now = performance.now();
    const isUseless = !this.#mayHaveTwoLinks || this.#second !== null || this.#over.signal.aborted;
    if (isUseless || now - this.#secondTriedAt < SECOND_LINK_RETRY_MS) return;
    this.#secondTriedAt = now;
    const { authtoken, clock, log } = this.options;
    const work = (signal: AbortSignal) => this.#openSecond(signal);
    withSignal(work, 'opening a second connection', SECOND_LINK_DEADLINE_MS, this.#over.signal, clock).catch(
      (error: unknown) => {
        log.debug({ reason: redact(messageOf(error), authtoken) }, 'no second connection');
      },
    );
  }

  async #openSecond(signal: AbortSignal): Promise<void> {
    const { address, dial, ca, time, resumption, authtoken } = this.options;
    const { Ticket, Error: reason } = await call(this.first, StreamType.linkTicket, {}, LinkTicket);
    if (reason !== '') throw new Error(reason);
    const socket = await connectToGateway({ address, dial, ca, time, tlsSession: resumption.tlsSession }, signal);
    if (signal.aborted) socket.destroy();
    signal.throwIfAborted();
    const link = this.#linkOver(socket);
    this.#second = link;
    const close = (error: unknown) => link.connection.close(new Error(messageOf(error)));
    signal.addEventListener('abort', () => close(signal.reason));
    const request = { AuthToken: authtoken, SessionId: resumption.clientId, Ticket };
    const answer = call(link.connection, StreamType.link, request, CommandAnswer);
    const { Error: refusal } = await answer.catch((error: unknown) => ({ Error: messageOf(error) }));
    if (refusal === '') return;
    close(refusal);
    throw new Error(refusal);
  }

  /** The link has ended, and with it its streams. */
  #lose(link: SessionLink, { message }: Error): void {
    const other = link === this.#first ? this.#second : this.#first;
    this.#second = null;
    if (other !== null) {
      this.#first = other;
      this.options.log.debug({ reason: message }, 'one of two connections lost');
      return;
    }
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    this.user.lost(message);
  }
}

async function call<T>(connection: Connection, type: number, body: object, schema: ZodType<T>): Promise<T> {
  const channel = connection.channel();
  channel.write(Buffer.concat([streamPrefix(type), Buffer.from(JSON.stringify(body))]));
  const answer = new Promise<unknown>((resolve, reject) => {
    channel.receiver = new RpcCall(channel, { resolve, reject });
  });
  connection.open(channel);
  const parsed = schema.safeParse(await answer);
  if (!parsed.success) throw new Error('malformed answer of the gateway', { cause: parsed.error });
  return parsed.data;
}

/** Announced to the gateway, which notices a silent agent a second after both: as late as the agent a silent gateway. */
export const HEARTBEAT_INTERVAL_S = 4;
export const HEARTBEAT_TOLERANCE_S = 5;

export const TICK_MS = 1900;
const TICKS_PER_BEAT = 2;
/** A dead link is noticed 7.6 to 9.5 s after its last bytes. */
const SILENT_TICKS = 4;

/**
 * One of a session's connections to the gateway. It sends heartbeats, and notices when the connection goes silent without
 * closing. It counts ticks instead of time, so that a process that was suspended does not blame the gateway for the gap. Any
 * bytes count as an answer.
 */
class SessionLink {
  readonly connection: Connection;
  readonly #probe: HeartbeatProbe;
  #ticks = 0;
  #silent = 0;
  #heardAt: number;

  /**
   * Sends the first heartbeat: gateways expect it before anything else.
   *
   * @param memory what the session's links may hold together
   */
  constructor(socket: Duplex, user: ConnectionUser, memory: MemoryBudget) {
    const connection = new Connection(socket, user, 'agent');
    connection.limitMemory(memory);
    connection.start();
    const channel = connection.channel();
    channel.write(streamPrefix(StreamType.heartbeat));
    this.#probe = new HeartbeatProbe(channel);
    channel.receiver = this.#probe;
    connection.open(channel);
    this.connection = connection;
    this.#heardAt = connection.lastReadAt;
    this.#beat();
  }

  /** Sends a heartbeat when it is due, and closes a connection on which the gateway has sent nothing for too long. */
  tick(): void {
    const { lastReadAt } = this.connection;
    this.#silent = lastReadAt === this.#heardAt ? this.#silent + 1 : 0;
    this.#heardAt = lastReadAt;
    this.#ticks += 1;
    if (this.#silent >= SILENT_TICKS) this.connection.close(new Error('the gateway no longer answers heartbeats'));
    else if (this.#ticks % TICKS_PER_BEAT === 0) this.#beat();
  }

  /** Resolves once the gateway has everything that was sent, or after so many milliseconds. */
  async delivered(ms: number): Promise<void> {
    await this.#probe.ask(ms);
  }

  #beat(): void {
    const sentAt = performance.now();
    void this.#probe.ask(TICK_MS * SILENT_TICKS).then((answered) => {
      const now = performance.now();
      if (answered) this.connection.roundTrip.add(now - sentAt, now);
    });
  }
}
