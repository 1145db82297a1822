import type { Duplex } from 'node:stream';
import type { ZodType } from 'zod';
import type { Channel, ChannelReceiver } from '../../../agent-protocol/channel.ts';
import type { ConnectionUser } from '../../../agent-protocol/connection.ts';
import { LARGEST_WINDOW } from '../../../agent-protocol/credit-window.ts';
import { HeartbeatEcho } from '../../../agent-protocol/heartbeat.ts';
import {
  AuthAnswer,
  BindAnswer,
  CommandAnswer,
  LinkTicket,
  type ProxyHeader,
  StopTunnel,
  StreamType,
} from '../../../agent-protocol/messages.ts';
import { parseRpcError, RpcResponder, TypedStream } from '../../../agent-protocol/rpc.ts';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { MemoryBudget } from '../../../lib/memory-budget.ts';
import { availableMemory } from '../../../lib/process/available-memory.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { DeadlineExceeded, withDeadline, withSignal } from '../../../lib/time/deadline.ts';
import type { Endpoint, EndpointRequest, EndpointUpstream } from '../connector.ts';
import { offline, redact, refusalOf } from '../gateway-error.ts';
import { type GatewaySession, SessionRefused } from '../gateway-session.ts';
import { connectToGateway, type GatewaySocketOptions } from '../gateway-socket.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';
import { RpcQueue } from '../rpc-queue.ts';
import { SessionEndpoint } from '../session-endpoint.ts';
import { call } from './call.ts';
import { ProxyStream } from './proxy-stream.ts';
import { authRequest, bindRequest, NOT_SUPPORTED } from './requests.ts';
import { watchRequests } from './requests-stream.ts';
import { HEARTBEAT_INTERVAL_S, HEARTBEAT_TOLERANCE_S, SessionLink, TICK_MS } from './session-link.ts';
import { UpstreamStream } from './upstream-stream.ts';

const CONNECT_DEADLINE_MS = 18_000;
const BIND_DEADLINE_MS = 15_000;
const UNBIND_DEADLINE_MS = 5000;
/** For all endpoints, and what clients have under way, on stop. The process has 5 s for that. */
const DRAIN_DEADLINE_MS = 2000;
const SECOND_LINK_DEADLINE_MS = 10_000;
/** Milliseconds after an attempt to open a second link until the next one. */
const SECOND_LINK_RETRY_MS = 30_000;
/** The gateway accepts 64 streams of an agent, one of which carries heartbeats. */
const CALLS_AT_ONCE = 32;
const MIB = 1_048_576;
/** Bytes held for upstreams and for the gateway, or promised to it: an eighth of the memory within these bounds. */
const [LEAST_MEMORY, MOST_MEMORY] = [16 * MIB, 128 * MIB];

/** What later sessions take over from earlier ones. */
export interface Continuity {
  /** The gateway's id for this agent; it hands over the endpoints of earlier sessions with the same one. */
  clientId: string;
  tlsSession: Buffer | null;
}

export interface NativeSessionOptions extends Pick<GatewaySocketOptions, 'address' | 'dial' | 'ca'> {
  authtoken: string;
  version: string;
  metadata: string;
  continuity: Continuity;
  clock: Clock;
  progress: ProgressMonitor;
  log: Log;
}

/**
 * Starts a session, which never reconnects.
 *
 * @throws {SessionRefused} when the gateway is unreachable, cannot be verified, or refuses
 */
export async function connectNativeSession(options: NativeSessionOptions): Promise<GatewaySession> {
  const { address, dial, ca, continuity, clock, authtoken } = options;
  const work = async (signal: AbortSignal) => {
    const onTlsSession = (session: Buffer) => {
      continuity.tlsSession = session;
    };
    const socket = await connectToGateway(
      { address, dial, ca, tlsSession: continuity.tlsSession, onTlsSession },
      signal,
    );
    const session = new NativeSession(socket, options);
    signal.addEventListener('abort', () => session.end(messageOf(signal.reason)));
    await session.start();
    return session;
  };
  try {
    return await withSignal(work, 'starting a session', CONNECT_DEADLINE_MS, undefined, clock);
  } catch (error) {
    if (error instanceof SessionRefused) throw error;
    throw new SessionRefused(null, redact(messageOf(error), authtoken), { cause: error });
  }
}

interface Served {
  endpoint: SessionEndpoint;
  upstream: EndpointUpstream;
}

/**
 * A session with a gateway, over one link or two equal ones: the gateway chooses a link for each stream of a client. It lives
 * as long as one of them. Requests to the gateway travel on the first.
 */
class NativeSession implements GatewaySession {
  readonly lost: Promise<string>;
  #settleLost: (reason: string) => void = () => {};
  readonly #over = new AbortController();
  readonly #memory = new MemoryBudget(Math.min(MOST_MEMORY, Math.max(LEAST_MEMORY, availableMemory() / 8)));
  #first: SessionLink;
  #second: SessionLink | null = null;
  /** The largest window of a stream; 0: that of the protocol. */
  #window = 0;
  readonly #rpc: RpcQueue;
  /** By the gateway's ids. */
  readonly #served = new Map<string, Served>();
  /** When the last attempt to open a second link began, in milliseconds of `performance.now()`; none was made: -Infinity. */
  #secondTriedAt = Number.NEGATIVE_INFINITY;
  #mayHaveTwoLinks = false;
  /** Whether the gateway reports requests. */
  #hasReports = false;
  /** Connections of clients. */
  #streams = 0;
  #onNoStreams = () => {};

  constructor(
    socket: Duplex,
    private readonly options: NativeSessionOptions,
  ) {
    this.lost = new Promise((resolve) => {
      this.#settleLost = resolve;
    });
    this.#first = this.#linkOver(socket);
    this.#rpc = new RpcQueue(options.clock, (error) => this.end(error.message), CALLS_AT_ONCE);
  }

  /** Authenticates; rejects when the gateway refuses, or the connection is lost. */
  async start(): Promise<void> {
    const { authtoken, version, metadata, continuity } = this.options;
    const { clientId } = continuity;
    const heartbeats = { heartbeatIntervalS: HEARTBEAT_INTERVAL_S, heartbeatToleranceS: HEARTBEAT_TOLERANCE_S };
    const request = authRequest({ authtoken, clientId, version, metadata, ...heartbeats });
    const answer = await this.#call(StreamType.auth, request, AuthAnswer);
    if (answer.Error !== '') {
      this.end('refused');
      const { code, message } = parseRpcError(redact(answer.Error, authtoken));
      throw new SessionRefused(code, message);
    }
    continuity.clientId = answer.ClientId;
    const { StreamWindow, SecondLink, RequestFeed } = answer.Extra;
    this.#window = Math.min(StreamWindow, LARGEST_WINDOW);
    this.#first.connection.extend(this.#window);
    this.#hasReports = RequestFeed;
    this.#mayHaveTwoLinks = SecondLink;
    // Aborted: the session is over already.
    void this.#tick().catch(() => {});
  }

  async open(request: EndpointRequest): Promise<Endpoint> {
    try {
      return await this.#rpc.call({
        what: `binding ${request.domain ?? 'an endpoint'}`,
        deadlineMs: BIND_DEADLINE_MS,
        start: () => this.#bind(request),
        // Only a session that has ended discards it.
        discard: () => {},
      });
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const message = messageOf(error);
      throw error instanceof DeadlineExceeded ? offline(message, error) : refusalOf({ code: null, message });
    }
  }

  end(reason: string): void {
    for (const link of [this.#first, this.#second]) link?.connection.close(new Error(reason));
  }

  async close(): Promise<void> {
    const { clock, log } = this.options;
    try {
      if (!this.#over.signal.aborted) {
        await withDeadline(this.#drain(), 'answering the last requests', DRAIN_DEADLINE_MS, undefined, clock);
      }
    } catch (error) {
      log.debug({ reason: messageOf(error) }, 'session ended with open connections');
    }
    this.end('closed by the agent');
  }

  /** Takes all endpoints offline, and waits until clients have no connections any more. */
  async #drain(): Promise<void> {
    const unbind = (id: string) => this.#call(StreamType.unbind, { Id: id, Drain: true }, CommandAnswer);
    await Promise.allSettled([...this.#served.keys()].map(unbind));
    if (this.#streams > 0) {
      await new Promise<void>((resolve) => {
        this.#onNoStreams = resolve;
      });
    }
    await Promise.all([this.#first, this.#second].map((link) => link?.delivered(DRAIN_DEADLINE_MS)));
  }

  #linkOver(socket: Duplex): SessionLink {
    const user: ConnectionUser = {
      accept: (channel) => {
        channel.receiver = new TypedStream(channel, (type) => this.#receiverFor(type, channel));
      },
      carriesBulk: () => this.#wantSecond(),
      ended: (reason) => this.#lose(link, reason),
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
    const { address, dial, ca, continuity, authtoken } = this.options;
    const { Ticket, Error: reason } = await call(this.#first.connection, StreamType.linkTicket, {}, LinkTicket);
    if (reason !== '') throw new Error(reason);
    const socket = await connectToGateway({ address, dial, ca, tlsSession: continuity.tlsSession }, signal);
    if (signal.aborted) socket.destroy();
    signal.throwIfAborted();
    const link = this.#linkOver(socket);
    this.#second = link;
    const close = (error: unknown) => link.connection.close(new Error(messageOf(error)));
    signal.addEventListener('abort', () => close(signal.reason));
    const request = { AuthToken: authtoken, SessionId: continuity.clientId, Ticket };
    const answer = call(link.connection, StreamType.link, request, CommandAnswer);
    const { Error: refusal } = await answer.catch((error: unknown) => ({ Error: messageOf(error) }));
    if (refusal === '') return;
    close(refusal);
    throw new Error(refusal);
  }

  async #tick(): Promise<void> {
    for (;;) {
      await this.options.clock.sleep(TICK_MS, this.#over.signal);
      this.options.progress.report();
      for (const link of [this.#first, this.#second]) link?.tick();
    }
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
    this.#rpc.close(offline(message));
    for (const { endpoint } of this.#served.values())
      endpoint.end({ code: null, message: `session ended: ${message}` });
    this.#served.clear();
    this.#settleLost(message);
  }

  #receiverFor(type: number, channel: Channel): ChannelReceiver {
    switch (type) {
      case StreamType.proxy:
        return new ProxyStream(channel, (header) => this.#serve(header, channel));
      case StreamType.heartbeat:
        return new HeartbeatEcho(channel);
      case StreamType.stopTunnel:
        return this.#responder(channel, (body) => this.#stop(body));
      default:
        return this.#responder(channel, () => NOT_SUPPORTED);
    }
  }

  #responder(channel: Channel, answer: (body: unknown) => object): RpcResponder {
    const report = (err: unknown) => this.options.log.error({ err }, 'request of the gateway failed');
    return new RpcResponder(channel, async (request) => ({ body: answer(request.parse()) }), report);
  }

  #serve({ Id, Proto }: ProxyHeader, channel: Channel): ChannelReceiver | null {
    const served = this.#served.get(Id);
    if (!served) return null;
    this.#streams += 1;
    return new UpstreamStream(channel, {
      connecting: served.upstream.connect(),
      isHttp: Proto === 'http' || Proto === 'https',
      traffic: served.upstream.observeConnection?.(),
      onClosed: () => {
        this.#streams -= 1;
        if (this.#streams === 0) this.#onNoStreams();
      },
    });
  }

  #stop(body: unknown): object {
    const { Id, Message, ErrorCode } = StopTunnel.parse(body);
    this.#served.get(Id)?.endpoint.end({ code: ErrorCode || null, message: redact(Message, this.options.authtoken) });
    return {};
  }

  async #bind(request: EndpointRequest): Promise<SessionEndpoint> {
    const answer = await this.#call(StreamType.bind, bindRequest(request), BindAnswer);
    if (answer.Error !== '') throw refusalOf(parseRpcError(redact(answer.Error, this.options.authtoken)));
    const { Id: id, URL: url } = answer;
    const endpoint = new SessionEndpoint(url, () => this.#unbind(id));
    if (this.#hasReports) endpoint.watchRequests = (watcher) => watchRequests(this.#first.connection, id, watcher);
    this.#served.set(id, { endpoint, upstream: request.upstream });
    return endpoint;
  }

  async #unbind(id: string): Promise<void> {
    this.#served.delete(id);
    // The end of a session ends its endpoints.
    if (this.#over.signal.aborted) return;
    try {
      await this.#rpc.call(
        {
          what: 'unbinding the endpoint',
          deadlineMs: UNBIND_DEADLINE_MS,
          start: () => this.#call(StreamType.unbind, { Id: id }, CommandAnswer),
          discard: () => {},
        },
        true,
      );
    } catch (error) {
      // Ending the session makes sure that the endpoint ends.
      this.end(`endpoint could not be unbound: ${messageOf(error)}`);
    }
  }

  /** Sends a request; resolves to the gateway's answer. The gateway opens streams to an endpoint once it is processed. */
  async #call<T>(type: number, body: object, schema: ZodType<T>): Promise<T> {
    const link = this.#first;
    try {
      return await call(link.connection, type, body, schema);
    } catch (error) {
      // The gateway may have done it, or not.
      if (link !== this.#first) this.end('a connection was lost that carried a request');
      throw error;
    }
  }
}
