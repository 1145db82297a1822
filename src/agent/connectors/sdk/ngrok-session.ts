import type { Listener, Session, SessionBuilder } from '@ngrok/ngrok';
import type { Clock } from '../../../lib/clock.ts';
import { DeadlineExceeded, withDeadline } from '../../../lib/deadline.ts';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log.ts';
import type { Endpoint, EndpointRequest } from '../connector.ts';
import { type GatewaySession, SessionRefused } from '../gateway-session.ts';
import { HeartbeatWatchdog } from '../heartbeat-watchdog.ts';
import type { Pulse } from '../pulse.ts';
import { EndpointBuilders } from './endpoint-builders.ts';
import type { LostListeners } from './lost-listeners.ts';
import { NgrokEndpoint } from './ngrok-endpoint.ts';
import { RpcQueue } from './rpc-queue.ts';
import { offline, parseSdkError, toApiError } from './sdk-error.ts';

const BIND_DEADLINE_MS = 15_000;
const UNBIND_DEADLINE_MS = 5000;
/** For all endpoints together at the end: the whole process has 5 s to stop. */
const UNBIND_ALL_DEADLINE_MS = 2000;
const CLOSE_DEADLINE_MS = 1000;

/** The gateway knows no such endpoint: what was to be taken down is not there. */
const UNKNOWN_ENDPOINT = 'ERR_NGROK_333';

export interface NgrokSessionOptions {
  authtoken: string;
  verifyUpstreamTls: boolean;
  /** Takes the listeners when the session is lost. */
  lostListeners: LostListeners;
  clock: Clock;
  pulse: Pulse;
  log: Log;
}

/**
 * Starts a session, which never reconnects by itself.
 *
 * @param builder set up for the gateway; it can be used for any number of sessions
 * @throws {SessionRefused} when the gateway cannot be reached, is not who it should be, or refuses
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
 * A session of the SDK that ends when its connection does.
 *
 * Leaving one behind without leaking, measured with 1.7.0:
 *
 * - The SDK keeps every listener in a table of the process, and with it the session and its socket, until close() is
 *   called on that listener, which fails when the session is lost; see {@link LostListeners} for what is done then.
 * - `session.close()` comes before that. It ends the SDK's writing half, which otherwise keeps the socket of a broken
 *   connection until the session object is collected, and makes later calls fail where they would hang.
 * - It does not close a connection that still works, but silences it: without heartbeats the gateway closes it in its
 *   time, and the SDK frees the rest. Where the gateway is gone for good, the kernel gives up on the unanswered
 *   heartbeat in about a quarter of an hour.
 * - The SDK's callbacks live as long as its session. What they refer to must not refer to the session in turn.
 * - A method that rejects keeps its object for ever, and with it the session: so none is called that is known to. What
 *   nothing avoids are `session.close()` where the SDK noticed the loss while it wrote, and `listen()` that is refused.
 *   After a GOAWAY, where the writing half ignores close(), these keep the socket as well: a gateway that closes the
 *   connection without one spares its agents that.
 */
class NgrokSession implements GatewaySession {
  readonly lost: Promise<string>;
  #settleLost: (reason: string) => void = () => {};
  #over: AbortController = new AbortController();
  #released: Promise<void> = Promise.resolve();
  #sdk: { session: Session; builders: EndpointBuilders } | null = null;
  readonly #rpc: RpcQueue;
  readonly #endpoints = new Set<NgrokEndpoint>();
  /** Those on which close() was not called yet. */
  readonly #listeners = new Set<Listener>();

  constructor(private readonly options: NgrokSessionOptions) {
    this.lost = new Promise((resolve) => {
      this.#settleLost = resolve;
    });
    this.#rpc = new RpcQueue(options.clock, (error) => this.#end(error.message));
  }

  async connect(builder: SessionBuilder): Promise<void> {
    const { authtoken, verifyUpstreamTls, clock, pulse } = this.options;
    const watchdog = new HeartbeatWatchdog(clock, pulse);
    builder
      .authtoken(authtoken)
      // Null stands for an answer that is missing. Neither callback may throw: the SDK would abort the process.
      .handleHeartbeat((latency: number | null) => {
        if (latency !== null) watchdog.beat();
      })
      // Answering false makes the SDK print one line, `Aborting connection to …`, to standard output.
      .handleDisconnection((_address, error) => {
        queueMicrotask(() => this.#end(`the connection broke (${error})`));
        return false;
      });
    try {
      const session = await builder.connect();
      this.#sdk = { session, builders: new EndpointBuilders(session, verifyUpstreamTls) };
    } catch (error) {
      const { code, message } = parseSdkError(error, authtoken);
      throw new SessionRefused(code, message);
    }
    // A connection that breaks right after the gateway's yes: the SDK tells of the loss before it hands the session over.
    if (this.#over.signal.aborted) {
      await this.#release(false);
      throw new SessionRefused(null, await this.lost);
    }
    watchdog.untilSilent(this.#over.signal).then(
      () => this.#end('the gateway does not answer heartbeats any more'),
      () => {}, // aborted: the session is over already
    );
  }

  async open(request: EndpointRequest): Promise<Endpoint> {
    const { authtoken } = this.options;
    try {
      const listener = await this.#rpc.call({
        what: `binding ${request.domain ?? 'an endpoint'}`,
        deadlineMs: BIND_DEADLINE_MS,
        start: () => this.#listen(request),
        // It is discarded only when the session is over.
        discard: (late) => this.options.lostListeners.add([late]),
      });
      return this.#endpoint(listener, request.forwardTo);
    } catch (error) {
      throw toApiError(error, authtoken);
    }
  }

  async close(): Promise<void> {
    this.#end('the agent closed it', true);
    await this.#released;
  }

  async #listen(request: EndpointRequest): Promise<Listener> {
    if (!this.#sdk) throw offline('it is not up yet');
    return this.#sdk.builders.listen(request);
  }

  #endpoint(listener: Listener, forwardTo: string): Endpoint {
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
    // Once the session is over, its end takes care of every listener.
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
      // Whatever else the gateway answered: with the session, the endpoint is gone for certain.
      if (code !== UNKNOWN_ENDPOINT) this.#end(`an endpoint could not be unbound: ${message}`);
    }
  }

  /** The session is over. Whoever waits for it is told at once; what remains of it is cleared away behind that. */
  #end(reason: string, inGoodOrder = false): void {
    if (this.#over.signal.aborted) return;
    this.#over.abort();
    this.#rpc.close(offline(reason));
    for (const endpoint of this.#endpoints) endpoint.end({ code: null, message: `the session is over: ${reason}` });
    this.#endpoints.clear();
    this.#released = this.#release(inGoodOrder);
    this.#settleLost(reason);
  }

  async #release(inGoodOrder: boolean): Promise<void> {
    const session = this.#sdk?.session;
    this.#sdk = null; // the SDK's callbacks refer to this object, and would keep the session by it
    if (inGoodOrder) await this.#closeListeners();
    if (session) await this.#within(session.close(), 'closing the session', CLOSE_DEADLINE_MS);
    this.options.lostListeners.add(this.#listeners);
    this.#listeners.clear();
  }

  async #closeListeners(): Promise<void> {
    const closed = Promise.allSettled([...this.#listeners].map((listener) => listener.close()));
    this.#listeners.clear();
    await this.#within(closed, 'unbinding all endpoints', UNBIND_ALL_DEADLINE_MS);
  }

  /** Waits a while for what can hang, and whose failure changes nothing any more. */
  async #within(work: Promise<unknown>, what: string, ms: number): Promise<void> {
    const { clock, log } = this.options;
    try {
      await withDeadline(work, what, ms, undefined, clock);
    } catch (error) {
      log.debug({ reason: messageOf(error) }, error instanceof DeadlineExceeded ? 'SDK call hangs' : 'SDK call failed');
    }
  }
}
