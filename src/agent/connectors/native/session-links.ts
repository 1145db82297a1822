import type { Duplex } from 'node:stream';
import type { ZodType, z } from 'zod';
import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import { Connection, type ConnectionUser } from '../../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../../agent-protocol/credit-window.ts';
import { HeartbeatProbe, LinkUse } from '../../../agent-protocol/heartbeat.ts';
import { LinkBundle, MOST_LINKS } from '../../../agent-protocol/link-bundle.ts';
import {
  type AuthAnswer,
  CommandAnswer,
  LinkTicket,
  PaceAnswer,
  StreamType,
  streamPrefix,
} from '../../../agent-protocol/messages.ts';
import { RpcCall } from '../../../agent-protocol/rpc.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { availableMemory, MemoryBudget } from '../../../lib/memory-budget.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { withSignal } from '../../../lib/time/deadline.ts';
import type { DataBudget } from '../data-budget.ts';
import { redact } from '../gateway-error.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';
import { BUSY_TICKS, type LinkPace, TICK_MS } from '../link-pace.ts';

const FURTHER_LINK_DEADLINE_MS = 10_000;
/** Milliseconds after a further link was not opened, or was lost, until the next attempt. */
const FURTHER_LINK_RETRY_MS = 30_000;
/** Milliseconds without a transfer after which a further link is closed. */
const LINK_IDLE_MS = 30_000;
const MIB = 1_048_576;
/** Bytes held for upstreams and for the gateway, or promised to it: an eighth of the memory within these bounds. */
const [LEAST_MEMORY, MOST_MEMORY] = [16 * MIB, 128 * MIB];

/** What later sessions resume from earlier ones. */
export interface Resumption {
  /** The gateway's id for this agent; it hands over the endpoints of earlier sessions with the same one. */
  clientId: string;
  tlsSession: Buffer | null;
  /** The last report of the data budget to the gateway. */
  budget: string;
}

export interface SessionLinkOptions
  extends Pick<GatewaySocketOptions, 'address' | 'dial' | 'ca' | 'protocols' | 'time'> {
  authtoken: string;
  resumption: Resumption;
  pace: LinkPace;
  budget: DataBudget | null;
  /** Segments that TCP has sent again on this machine; null: it does not say. */
  sentAgain: () => Promise<number | null>;
  clock: Clock;
  log: Log;
}

export interface LinkUser {
  /** A stream that the gateway opens on a link. */
  accept(channel: Channel, link: Connection): void;
  lost(reason: string): void;
}

/**
 * The links of a session: one, two equal ones while the first carries bulk, or more where packets are lost. The gateway chooses a
 * link for each stream of a client. Requests to the gateway travel on the first.
 */
export class SessionLinks {
  readonly #over = new AbortController();
  readonly #memory = new MemoryBudget(Math.min(MOST_MEMORY, Math.max(LEAST_MEMORY, availableMemory() / 8)));
  /** In the order in which they came. */
  readonly #links: SessionLink[];
  /** Further ones that are being opened, and that were. */
  #opening = 0;
  #opened = 0;
  readonly #bundle: LinkBundle;
  /** Each lets a further link join. */
  readonly #tickets: string[] = [];
  /** The largest window of a stream; 0: that of the protocol. */
  #window = 0;
  #mostLinks = 1;
  #agreesOnPace = false;
  #isAgreeing = false;
  /** What clients do on any link. */
  readonly use = new LinkUse();
  /** When a further link was not opened or lost, and when a transfer was last under way; in milliseconds of `performance.now()`. */
  #failedAt = Number.NEGATIVE_INFINITY;
  #bulkAt = Number.NEGATIVE_INFINITY;
  /** When the gateway was last asked whether links are in use, and the one that it says is not. */
  #askedAt = Number.NEGATIVE_INFINITY;
  #closing: SessionLink | null = null;

  constructor(
    socket: Duplex,
    private readonly options: SessionLinkOptions,
    private readonly user: LinkUser,
  ) {
    const bundleUser = {
      ask: async (connection: Connection, ms: number) => (await this.#linkOf(connection)?.answers(ms)) ?? false,
      sentAgain: options.sentAgain,
      wantsLinks: (count: number) => this.#want(count),
    };
    this.#bundle = new LinkBundle(bundleUser, () => this.#mostLinks);
    this.#links = [this.#linkOver(socket)];
    this.#bundle.add(0, this.first);
  }

  /** Aborts when the last link has ended. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get first(): Connection {
    return this.#first.connection;
  }

  get #first(): SessionLink {
    return this.#links[0] as SessionLink;
  }

  #linkOf(connection: Connection): SessionLink | undefined {
    return this.#links.find((link) => link.connection === connection);
  }

  /** Uses the extensions that the gateway supports. */
  extend({ StreamWindow, SecondLink, Links, Ticket, HeartbeatPace }: z.output<typeof AuthAnswer>['Extra']): void {
    if (Ticket !== '') this.#tickets.push(Ticket);
    this.#window = Math.min(StreamWindow, LARGEST_WINDOW);
    this.#first.connection.extend(this.#window);
    if (SecondLink) this.#mostLinks = Math.max(2, Math.min(Links, MOST_LINKS));
    this.#agreesOnPace = HeartbeatPace;
  }

  /** Takes a stream of the gateway that carries a part of a client's; null: there are none of these. */
  acceptPart(channel: Channel, link: Connection): ChannelReceiver | null {
    return this.#mostLinks > 2 ? this.#bundle.accept(channel, link) : null;
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
    const isBusy = this.use.isBusy(performance.now(), this.options.pace.moreMs);
    for (const link of [...this.#links]) link.tick(isBusy);
    void this.#agreeOnPace();
    void this.#closeIdle();
  }

  /** Heartbeats are further apart once the gateway knows. Those of further links stay as they are. */
  async #agreeOnPace(): Promise<void> {
    const link = this.#first;
    const wanted = link.nextPace(this.options.pace.most);
    if (wanted < link.pace) link.pace = wanted;
    if (wanted <= link.pace || !this.#agreesOnPace || this.#isAgreeing || this.signal.aborted) return;
    this.#isAgreeing = true;
    try {
      const { Error: reason, IntervalMs } = await this.call(
        StreamType.pace,
        { IntervalMs: wanted * TICK_MS },
        PaceAnswer,
      );
      if (reason === '') link.pace = Math.max(BUSY_TICKS, Math.min(wanted, Math.floor(IntervalMs / TICK_MS)));
      else this.#agreesOnPace = false;
    } catch (error) {
      // The link is lost, or the gateway's answer is of no use.
      this.#agreesOnPace = false;
      this.options.log.debug({ reason: messageOf(error) }, 'time between heartbeats not agreed on');
    } finally {
      this.#isAgreeing = false;
    }
  }

  /** Resolves once the gateway has everything that was sent, or after so many milliseconds. */
  async delivered(ms: number): Promise<void> {
    await Promise.all(this.#links.map((link) => link.answers(ms)));
  }

  close(reason: string): void {
    for (const link of [...this.#links]) link.connection.close(new Error(reason));
  }

  #linkOver(socket: Duplex): SessionLink {
    const user = {
      accept: (channel: Channel) => this.user.accept(channel, link.connection),
      carriesBulk: (isSent: boolean) => this.#carriesBulk(link, isSent),
      ended: (reason: Error) => this.#lose(link, reason),
    };
    const isMetered = this.options.pace.kind === 'metered';
    const link: SessionLink = new SessionLink(socket, user, this.#memory, isMetered);
    link.connection.extend(this.#window);
    const { budget } = this.options;
    if (budget) link.connection.onTraffic = () => budget.sample();
    return link;
  }

  #carriesBulk({ connection }: SessionLink, isSent: boolean): void {
    this.#bulkAt = performance.now();
    // New streams take the second link while the first carries bulk. Without one, they share the first.
    this.#want(2);
    if (isSent) void this.#bundle.carriesBulk(connection);
  }

  #want(count: number): void {
    const most = this.options.pace.kind === 'metered' ? 1 : this.#mostLinks;
    while (this.#bundle.size + this.#opening < Math.min(count, most) && this.#mayOpen) this.#open();
  }

  get #mayOpen(): boolean {
    return !this.#over.signal.aborted && performance.now() - this.#failedAt >= FURTHER_LINK_RETRY_MS;
  }

  #open(): void {
    const { authtoken, clock, log } = this.options;
    this.#opening += 1;
    const work = (signal: AbortSignal) => this.#openFurther(signal);
    withSignal(work, 'opening a further connection', FURTHER_LINK_DEADLINE_MS, this.#over.signal, clock)
      .catch((error: unknown) => {
        this.#failedAt = performance.now();
        log.debug({ reason: redact(messageOf(error), authtoken) }, 'no further connection');
      })
      .finally(() => {
        this.#opening -= 1;
      });
  }

  async #openFurther(signal: AbortSignal): Promise<void> {
    const { address, dial, ca, protocols = [], time, resumption, pace, authtoken } = this.options;
    const isMetered = pace.kind === 'metered';
    const Ticket = this.#tickets.shift() ?? (await this.#askForTicket());
    const socket = await connectToGateway(
      { address, dial, ca, protocols, time, tlsSession: resumption.tlsSession, isMetered },
      signal,
    );
    if (signal.aborted) socket.destroy();
    signal.throwIfAborted();
    const link = this.#linkOver(socket);
    this.#links.push(link);
    const close = (error: unknown) => link.connection.close(new Error(messageOf(error)));
    signal.addEventListener('abort', () => close(signal.reason));
    this.#opened += 1;
    const number = this.#opened;
    const request = { AuthToken: authtoken, SessionId: resumption.clientId, Ticket, Link: number };
    const answer = call(link.connection, StreamType.link, request, CommandAnswer);
    const { Error: refusal } = await answer.catch((error: unknown) => ({ Error: messageOf(error) }));
    if (refusal !== '') {
      close(refusal);
      throw new Error(refusal);
    }
    if (!link.connection.hasEnded) this.#bundle.add(number, link.connection);
  }

  async #askForTicket(): Promise<string> {
    // The first link may have bulk before it.
    const asked = this.#bundle.freest(this.first);
    const { Ticket, Error: reason } = await call(asked, StreamType.linkTicket, {}, LinkTicket);
    if (reason !== '') throw new Error(reason);
    return Ticket;
  }

  /** Closes further links once no transfer needs them, and the gateway neither. Gateways that know two only close the second. */
  async #closeIdle(): Promise<void> {
    const now = performance.now();
    const isUseless = this.options.pace.kind === 'metered' || now - this.#bulkAt >= LINK_IDLE_MS;
    const further = this.#links.slice(1).reverse();
    if (!isUseless || this.#mostLinks <= 2 || this.#opening > 0 || further.length === 0) return;
    if (now - this.#askedAt < LINK_IDLE_MS) return;
    this.#askedAt = now;
    for (const link of further)
      await this.#closeUnused(link).catch((error: unknown) => {
        this.options.log.debug({ reason: messageOf(error) }, 'unused connection not closed');
      });
  }

  /** Both ends agree: what one has just sent there would be lost. */
  async #closeUnused(link: SessionLink): Promise<void> {
    if (!this.#bundle.leave(link.connection)) return;
    try {
      const { Error: refusal } = await call(link.connection, StreamType.linkEnd, {}, CommandAnswer);
      if (refusal !== '' || link === this.#first) return;
      this.#closing = link;
      link.connection.close(new Error('the connection was idle'));
    } finally {
      this.#bundle.stay(link.connection);
    }
  }

  /** The link has ended, and with it its streams. */
  #lose(link: SessionLink, error: Error): void {
    const { message } = error;
    const at = this.#links.indexOf(link);
    if (at < 0) return;
    if (error instanceof SilentLink) this.options.pace.lost(error.ticks);
    this.#bundle.delete(link.connection);
    if (this.#links.length > 1) {
      this.#links.splice(at, 1);
      if (link !== this.#closing) this.#failedAt = performance.now();
      this.options.log.debug({ reason: message }, 'one of several connections lost');
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

/** A dead link is noticed 7.6 to 9.5 s after its last bytes, when heartbeats are close together. */
const SILENT_TICKS = 4;
/** So many heartbeats are answered before they are further apart. */
const STEADY_BEATS = 3;

/**
 * One of a session's connections to the gateway. It sends heartbeats while nothing else passes, and notices when the
 * connection goes silent without closing. Any bytes count as an answer.
 */
class SessionLink {
  readonly connection: Connection;
  readonly #probe: HeartbeatProbe;
  /** Between heartbeats of this link when it is idle. */
  #every = BUSY_TICKS;
  /** Heartbeats that were answered since that changed. */
  #steady = 0;
  /** Ticks since a heartbeat was sent, or anything else passed in both directions. */
  #sinceBeat = 0;
  /** Ticks since the last bytes came. */
  #silent = 0;
  /** So many silent ticks are too many; null: no answer is due. */
  #deadAt: number | null = null;
  #heardAt: number;
  #sentAt = Number.NEGATIVE_INFINITY;

  /**
   * Opens the stream of heartbeats: gateways expect it before anything else.
   *
   * @param memory what the session's links may hold together
   * @param isMetered the first answer proves as well that the gateway is there: an echo beside it costs 90 bytes and more
   */
  constructor(socket: Duplex, user: ConnectionUser, memory: MemoryBudget, isMetered: boolean) {
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
    if (isMetered) this.#deadAt = SILENT_TICKS;
    else this.#beat(BUSY_TICKS);
  }

  /** Ticks between its heartbeats for which it has proved stable; those it has now, until then. */
  nextPace(most: number): number {
    if (this.#every > most) return most;
    return this.#steady < STEADY_BEATS ? this.#every : Math.min(2 * this.#every, most);
  }

  get pace(): number {
    return this.#every;
  }

  set pace(ticks: number) {
    this.#every = ticks;
    this.#steady = 0;
  }

  /**
   * Sends a heartbeat when it is due, and closes a connection on which the gateway has sent nothing for too long.
   *
   * @param isBusy whether clients wait for something
   */
  tick(isBusy: boolean): void {
    const { lastReadAt, lastSentAt } = this.connection;
    const every = isBusy ? Math.min(BUSY_TICKS, this.#every) : this.#every;
    const isHeard = lastReadAt !== this.#heardAt;
    // An echo does not put off the next heartbeat: on a slow link, the gateway would have less time for its answer.
    const hasPassed = isHeard && lastReadAt > this.#probe.echoedAt && lastSentAt !== this.#sentAt;
    this.#silent = isHeard ? 0 : this.#silent + 1;
    if (isHeard) this.#deadAt = null;
    this.#sinceBeat = hasPassed ? 0 : this.#sinceBeat + 1;
    this.#heardAt = lastReadAt;
    this.#sentAt = lastSentAt;
    if (this.#deadAt !== null && this.#silent >= this.#deadAt)
      this.connection.close(new SilentLink('the gateway no longer answers heartbeats', every));
    else if (this.#sinceBeat >= every) this.#beat(every);
  }

  /** @returns whether the gateway answers within so many milliseconds, and so has everything that was sent before */
  answers(ms: number): Promise<boolean> {
    return this.#probe.ask(ms);
  }

  #beat(every: number): void {
    const sentAt = performance.now();
    this.#sinceBeat = 0;
    this.#deadAt ??= every > BUSY_TICKS ? every + SILENT_TICKS : Math.max(SILENT_TICKS, this.#silent + BUSY_TICKS);
    void this.#probe.ask(TICK_MS * SILENT_TICKS).then((answered) => {
      const now = performance.now();
      if (!answered) return;
      this.connection.roundTrip.add(now - sentAt, now);
      if (every === this.#every) this.#steady += 1;
    });
  }
}

class SilentLink extends Error {
  /** @param ticks between its heartbeats */
  constructor(
    message: string,
    readonly ticks: number,
  ) {
    super(message);
    this.name = 'SilentLink';
  }
}
