import { Socket } from 'node:net';
import type {
  HttpListenerBuilder,
  Listener,
  Session,
  SessionBuilder,
  TcpListenerBuilder,
  TlsListenerBuilder,
} from '@ngrok/ngrok';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { type OwnConnection, ownConnections } from '../../../lib/process/own-connections.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { DeadlineExceeded, withDeadline } from '../../../lib/time/deadline.ts';
import type { ConnectedEndpoint, EndpointRequest } from '../connector.ts';
import { offline } from '../gateway-error.ts';
import { type GatewaySession, SessionEndpoint, SessionRefused } from '../gateway-link.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';
import { RpcQueue } from '../rpc-queue.ts';
import { HeartbeatWatchdog } from './heartbeat-watchdog.ts';
import type { ListenerCleanup } from './listener-cleanup.ts';
import { parseListenerClosed, parseSdkError, toApiError } from './sdk-error.ts';

class NgrokEndpoint extends SessionEndpoint {
  /** Starts forwarding. It ends when the gateway stops the endpoint. */
  forward(listener: Listener, to: string, secret: string): void {
    listener.forward(to).then(
      () => this.end({ code: null, message: 'the gateway ended the endpoint' }),
      (error) => this.end(parseListenerClosed(error, secret)),
    );
  }
}

/** With a few calls queued, the SDK starts the next one without a round trip to JavaScript: 20 % faster (measured). */
const CALLS_AT_ONCE = 4;
const BIND_DEADLINE_MS = 15_000;
const UNBIND_DEADLINE_MS = 5000;
/** For all endpoints together on stop, for which the process has 5 s. */
const UNBIND_ALL_DEADLINE_MS = 2000;
const CLOSE_DEADLINE_MS = 1000;
/**
 * A link is dead when nothing was acknowledged for this share of the time between heartbeats. A gateway that is busy, or behind
 * a full uplink, acknowledges meanwhile.
 */
const UNANSWERED_SHARE = 0.875;
const UNANSWERED_MOST_S = 8;

/** The gateway knows no such endpoint, so it is unbound already. */
const UNKNOWN_ENDPOINT = 'ERR_NGROK_333';

export interface NgrokSessionOptions {
  /** Where the SDK connects to: at the gateway, or of a relay. */
  port: number;
  /** Where this process connects to: at the gateway, or of a proxy. */
  gatewayPort: number;
  heartbeatIntervalS: number;
  authtoken: string;
  listenerCleanup: ListenerCleanup;
  clock: Clock;
  progress: ProgressMonitor;
  log: Log;
}

/**
 * Starts a session, which never reconnects.
 *
 * @param builder set up for the gateway; serves any number of sessions
 * @throws {SessionRefused} when the gateway is unreachable, cannot be verified, or refuses
 */
export async function connectNgrokSession(
  builder: SessionBuilder,
  options: NgrokSessionOptions,
): Promise<GatewaySession> {
  const session = new NgrokSession(options);
  await session.connect(builder);
  return session;
}

/**
 * A session of the SDK that ends with its connection.
 *
 * How to end one without leaks, measured with 1.7.0:
 *
 * - The SDK keeps every listener in a table of the process, with its session and socket, until close() is called on the
 *   listener. That call fails once the session is lost; {@link ListenerCleanup} handles those.
 * - `session.close()` comes first. It ends the SDK's writing half, which otherwise keeps the socket of a broken connection
 *   until the session object is collected, and makes later calls fail instead of hang.
 * - It does not close a working connection, but silences it. Without heartbeats the gateway closes it, and the SDK frees
 *   the rest. If the gateway has vanished, the kernel gives up on the unanswered heartbeat after about 15 minutes.
 * - The SDK's callbacks live as long as its session, so they must not refer to the session.
 * - A method that rejects leaks its object, and with it the session, so methods known to reject are not called. Two cases
 *   remain: `session.close()` when the SDK noticed the loss while writing, and `listen()` when it is refused. After a
 *   GOAWAY, where the writing half ignores close(), these leak the socket as well; a gateway that closes the connection
 *   without a GOAWAY avoids that.
 */
class NgrokSession implements GatewaySession {
  readonly lost: Promise<string>;
  #settleLost: (reason: string) => void = () => {};
  #over: AbortController = new AbortController();
  #released: Promise<void> = Promise.resolve();
  #sdk: { session: Session; builders: EndpointBuilders } | null = null;
  readonly #rpc: RpcQueue;
  readonly #endpoints = new Set<NgrokEndpoint>();
  readonly #listeners = new Set<Listener>();

  constructor(private readonly options: NgrokSessionOptions) {
    this.lost = new Promise((resolve) => {
      this.#settleLost = resolve;
    });
    this.#rpc = new RpcQueue(options.clock, (error) => this.#end(error.message), CALLS_AT_ONCE);
  }

  async connect(builder: SessionBuilder): Promise<void> {
    const { authtoken, clock, progress, gatewayPort, heartbeatIntervalS, log } = this.options;
    let own = new Set<string>();
    const isDead = () => {
      const its = connectionsTo([gatewayPort], log).filter(({ inode }) => own.has(inode));
      const enoughMs = UNANSWERED_SHARE * Math.min(heartbeatIntervalS, UNANSWERED_MOST_S) * 1000;
      return its.length > 0 && its.every(({ unansweredMs }) => unansweredMs >= enoughMs);
    };
    const watchdog = new HeartbeatWatchdog({ clock, progress, intervalS: heartbeatIntervalS, isDead });
    builder
      .heartbeatInterval(heartbeatIntervalS)
      .authtoken(authtoken)
      // Null: no answer. A callback that throws makes the SDK abort the process.
      .handleHeartbeat((latency: number | null) => {
        if (latency !== null) watchdog.beat();
      })
      // The SDK prints `Aborting connection to …` to standard output, by Rust's println!, whenever this returns false; see
      // silenceNativeOutput() for terminals. Tried with 1.7.0: any other value than a boolean or null aborts the process, as
      // does an exception. True or null makes the SDK connect on its own, bind the same endpoints and compete with our next
      // session; closing the session at once does not stop that.
      .handleDisconnection((_address, error) => {
        queueMicrotask(() => this.#end(`connection lost: ${error}`));
        return false;
      });
    try {
      const session = await builder.connect();
      this.#sdk = { session, builders: new EndpointBuilders(session) };
    } catch (error) {
      const { code, message } = parseSdkError(error, authtoken);
      throw new SessionRefused(code, message);
    }
    // The connection broke right after the gateway accepted: the SDK reports the loss before it returns the session.
    if (this.#over.signal.aborted) {
      await this.#release(false);
      throw new SessionRefused(null, await this.lost);
    }
    const { port } = this.options;
    const connections = connectionsTo([port, gatewayPort], log);
    own = new Set(connections.filter((one) => one.port === gatewayPort).map(({ inode }) => inode));
    setNoDelay(
      connections.filter((one) => one.port === port),
      log,
    );
    watchdog.untilSilent(this.#over.signal).then(
      (reason) => this.#end(reason),
      () => {}, // aborted: the session is over already
    );
  }

  async open(request: EndpointRequest): Promise<ConnectedEndpoint> {
    const { authtoken } = this.options;
    try {
      const forwardTo = await request.upstream.address();
      const listener = await this.#rpc.call({
        what: `binding ${request.domain ?? 'an endpoint'}`,
        deadlineMs: BIND_DEADLINE_MS,
        start: () => this.#listen(request),
        // Only a session that has ended discards it.
        discard: (late) => this.options.listenerCleanup.add([late]),
      });
      return this.#endpoint(listener, forwardTo);
    } catch (error) {
      throw toApiError(error, authtoken);
    }
  }

  end(reason: string): void {
    this.#end(reason);
  }

  async close(): Promise<void> {
    this.#end('closed by the agent', true);
    await this.#released;
  }

  async #listen(request: EndpointRequest): Promise<Listener> {
    if (!this.#sdk) throw offline('not established yet');
    return this.#sdk.builders.listen(request);
  }

  #endpoint(listener: Listener, forwardTo: string): ConnectedEndpoint {
    this.#listeners.add(listener);
    const endpoint: NgrokEndpoint = new NgrokEndpoint(listener.url() ?? '', async () => {
      this.#endpoints.delete(endpoint);
      await this.#unbind(listener);
    });
    this.#endpoints.add(endpoint);
    endpoint.forward(listener, forwardTo, this.options.authtoken);
    return endpoint;
  }

  async #unbind(listener: Listener): Promise<void> {
    // The end of a session closes its listeners.
    if (this.#over.signal.aborted) return;
    try {
      await this.#rpc.call(
        {
          what: 'unbinding the endpoint',
          deadlineMs: UNBIND_DEADLINE_MS,
          start: () => {
            this.#listeners.delete(listener);
            return listener.close();
          },
          discard: () => {},
        },
        true,
      );
    } catch (error) {
      const { code, message } = parseSdkError(error, this.options.authtoken);
      // For any other answer, ending the session makes sure that the endpoint ends.
      if (code !== UNKNOWN_ENDPOINT) this.#end(`endpoint could not be unbound: ${message}`);
    }
  }

  /** Ends the session. Reports that at once, and frees its resources after that. */
  #end(reason: string, orderly = false): void {
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    this.#rpc.close(offline(reason));
    for (const endpoint of this.#endpoints) endpoint.end({ code: null, message: `session ended: ${reason}` });
    this.#endpoints.clear();
    this.#released = this.#release(orderly);
    this.#settleLost(reason);
  }

  async #release(orderly: boolean): Promise<void> {
    const session = this.#sdk?.session;
    this.#sdk = null; // the SDK's callbacks refer to this object, and would keep the session
    if (orderly) await this.#closeListeners();
    if (session) await this.#within(session.close(), 'closing the session', CLOSE_DEADLINE_MS);
    this.options.listenerCleanup.add(this.#listeners);
    this.#listeners.clear();
  }

  async #closeListeners(): Promise<void> {
    const closed = Promise.allSettled([...this.#listeners].map((listener) => listener.close()));
    this.#listeners.clear();
    await this.#within(closed, 'unbinding all endpoints', UNBIND_ALL_DEADLINE_MS);
  }

  /** Waits a limited time for a call that can hang and whose failure does not matter. */
  async #within(work: Promise<unknown>, what: string, ms: number): Promise<void> {
    const { clock, log } = this.options;
    try {
      await withDeadline(work, what, ms, undefined, clock);
    } catch (error) {
      log.debug({ reason: messageOf(error) }, error instanceof DeadlineExceeded ? 'SDK call hangs' : 'SDK call failed');
    }
  }
}

type EndpointBuilder = HttpListenerBuilder | TcpListenerBuilder | TlsListenerBuilder;

/**
 * The reusable listener builders of one session. When `listen()` rejects, the SDK leaks its builder and the session (1.7.0:
 * a method that rejects keeps a reference to its object). A tunnel that is refused and retried for months must not leak
 * thousands of them.
 *
 * A builder serves one call at a time. `listen()` reads it only when the SDK starts the call, and changes meanwhile would
 * bind one tunnel under the name of another.
 */
class EndpointBuilders {
  /** Idle builders by the options set on them. */
  readonly #idle = new Map<string, EndpointBuilder[]>();

  constructor(private readonly session: Session) {}

  async listen(request: EndpointRequest): Promise<Listener> {
    const idle = this.#idleFor(request);
    const builder = idle.pop() ?? this.#create(request);
    this.#prepare(builder, request);
    try {
      // false: otherwise the SDK opens a local port to forward to.
      return await builder.listen(false);
    } finally {
      idle.push(builder);
    }
  }

  /** Options cannot be unset, so each combination of them has builders of its own. */
  #idleFor({ protocol, domain, trafficPolicy, options = {} }: EndpointRequest): EndpointBuilder[] {
    const { binding, app_protocol, pooling, metadata, proxy_proto } = options;
    const set = [domain !== undefined, hasRules(trafficPolicy), metadata !== undefined];
    const key = [protocol, ...set, binding, app_protocol, pooling, proxy_proto].join(' ');
    const idle = this.#idle.get(key) ?? [];
    this.#idle.set(key, idle);
    return idle;
  }

  #prepare(builder: EndpointBuilder, { domain, forwardsTo, trafficPolicy, options }: EndpointRequest): void {
    builder.forwardsTo(forwardsTo);
    if (hasRules(trafficPolicy)) builder.trafficPolicy(JSON.stringify(trafficPolicy));
    if (options?.metadata !== undefined) builder.metadata(options.metadata);
    if (domain === undefined) return;
    if ('remoteAddr' in builder) builder.remoteAddr(domain);
    else builder.domain(domain);
  }

  #create({ protocol, options = {} }: EndpointRequest): EndpointBuilder {
    const builder = this.#builderFor(protocol);
    const { binding, app_protocol, pooling, proxy_proto } = options;
    if (binding !== undefined) builder.binding(binding);
    if (app_protocol !== undefined && 'appProtocol' in builder) builder.appProtocol(app_protocol);
    if (pooling !== undefined) builder.poolingEnabled(pooling);
    if (proxy_proto !== undefined) builder.proxyProto(proxy_proto);
    return builder;
  }

  #builderFor(protocol: EndpointRequest['protocol']): EndpointBuilder {
    if (protocol === 'tcp') return this.session.tcpEndpoint();
    return protocol === 'tls' ? this.session.tlsEndpoint() : this.session.httpEndpoint();
  }
}

function hasRules(policy: EndpointRequest['trafficPolicy']): boolean {
  return Object.values(policy ?? {}).some((rules) => rules.length > 0);
}

/** By descriptor: never more than the SDK had sockets at a time. */
const handles = new Map<number, Socket>();

/**
 * Turns off Nagle's algorithm on connections of this process. The SDK (1.7.0) leaves it on, so each
 * response waits for the acknowledgement of the credit that its request was given: a second round trip.
 *
 * The SDK does not expose its socket, so Node gets a handle for the descriptor. The handle never reads, and is never
 * closed, not even when the descriptor has another owner: closing it would close that owner's file. It is used again when
 * the SDK gets the same descriptor again.
 */
export function setNoDelay(connections: readonly OwnConnection[], log: Log): void {
  try {
    for (const { descriptor } of connections) setNoDelayOf(descriptor);
  } catch (err) {
    log.debug({ err }, 'TCP_NODELAY not set');
  }
}

/** This process's connections to some ports; none where the system does not list them. */
function connectionsTo(ports: readonly number[], log: Log): OwnConnection[] {
  if (process.platform !== 'linux') return [];
  try {
    return ownConnections('established', (port) => ports.includes(port));
  } catch (err) {
    log.debug({ err }, 'own connections not listed');
    return [];
  }
}

function setNoDelayOf(descriptor: number): void {
  const handle = handles.get(descriptor) ?? new Socket({ fd: descriptor, readable: false, writable: false }).unref();
  handles.set(descriptor, handle);
  // Node skips the call when it has made the same one before, perhaps for another socket.
  handle.setNoDelay(false).setNoDelay(true);
}
