import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import {
  type ConnectedEndpoint,
  domainOf,
  type EndpointEnd,
  type EndpointRequest,
  type RequestWatcher,
} from './connector.ts';
import type { GatewaySession } from './gateway-link.ts';

const RETRY = { baseMs: 1_000, maxMs: 30_000 };
/** After so many failures, another attempt hardly helps. */
const PERSISTENT = 3;

/** An endpoint that is bound in every session of an agent, and online as long as it is in one. */
export class SpreadEndpoint implements ConnectedEndpoint {
  readonly url: string;
  readonly ended: Promise<EndpointEnd>;
  /** Omitted when the gateway reports no requests. */
  readonly watchRequests?: (watcher: RequestWatcher) => () => void;
  readonly policyWarnings?: readonly string[];
  readonly domainUrl?: string;
  readonly #bound = new Map<GatewaySession, ConnectedEndpoint>();
  readonly #binding = new Map<GatewaySession, Promise<void>>();
  readonly #watches = new Set<SpreadWatch>();
  readonly #over = new AbortController();
  /** Ends the pauses between attempts. */
  #retries = new AbortController();
  #settleEnded: (end: EndpointEnd) => void = () => {};
  #closed: Promise<void> | null = null;

  /** @param first what is bound already, in `session` */
  constructor(
    first: ConnectedEndpoint,
    session: GatewaySession,
    private readonly options: {
      request: EndpointRequest;
      isOnline: (session: GatewaySession) => boolean;
      /** Limits how many are bound at a time. */
      inTurn: <T>(bind: () => Promise<T>) => Promise<T>;
      /** It is closed, or has ended. */
      onOver: (endpoint: SpreadEndpoint) => void;
      clock: Clock;
      log: Log;
    },
  ) {
    this.url = first.url;
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
    if (first.watchRequests) this.watchRequests = (watcher) => this.#watch(watcher);
    if (first.policyWarnings) this.policyWarnings = first.policyWarnings;
    if (first.domainUrl) this.domainUrl = first.domainUrl;
    void this.#keep(session, first);
  }

  /** Binds it in a further session, and again until it is bound there; nothing is thrown. */
  bindIn(session: GatewaySession): void {
    if (this.#bound.has(session) || this.#binding.has(session)) return;
    const binding = this.#bindUntilKept(session).finally(() => this.#binding.delete(session));
    this.#binding.set(session, binding);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#stop();
    // What is being bound would stay online unnoticed.
    await Promise.all(this.#binding.values());
    await Promise.all([...this.#bound.values()].map((endpoint) => endpoint.close()));
  }

  async #bindUntilKept(session: GatewaySession): Promise<void> {
    const { request, isOnline, inTurn, clock, log } = this.options;
    const { signal } = this.#retries;
    const there = { ...request, domain: domainOf(this.url, request.protocol) };
    for (let failures = 0; !signal.aborted && isOnline(session); failures += 1) {
      try {
        const endpoint = await inTurn(() => session.open(there));
        void this.#keep(session, endpoint);
        return;
      } catch (error) {
        const reason = messageOf(error);
        // The first ones may be about a session that has just ended.
        if (failures === PERSISTENT)
          log.warn({ url: this.url, reason }, 'endpoint in one of two sessions only; retrying');
        else log.debug({ url: this.url, reason }, 'endpoint not bound in a second session');
      }
      await clock.sleep(backoffDelay(failures, RETRY, clock.random), signal).catch(() => {});
    }
  }

  async #keep(session: GatewaySession, endpoint: ConnectedEndpoint): Promise<void> {
    this.#bound.set(session, endpoint);
    for (const watch of this.#watches) watch.add(endpoint);
    const end = await endpoint.ended;
    this.#bound.delete(session);
    if (this.#over.signal.aborted) return;
    // The gateway does not want it, wherever it is bound.
    if (end.code !== null) await this.close();
    else if (await this.#isBound()) return this.bindIn(session);
    this.#stop();
    this.#settleEnded(end);
  }

  /** Whether it is bound in a session, or is by the attempts that are under way. */
  async #isBound(): Promise<boolean> {
    const waited: GatewaySession[] = [];
    while (this.#bound.size === 0 && this.#binding.size > 0 && !this.#over.signal.aborted) {
      waited.push(...this.#binding.keys());
      this.#retries.abort();
      // For sessions that begin meanwhile.
      this.#retries = new AbortController();
      await Promise.all(this.#binding.values());
    }
    if (this.#bound.size === 0 || this.#over.signal.aborted) return false;
    for (const session of waited) this.bindIn(session);
    return true;
  }

  #stop(): void {
    this.#over.abort();
    this.#retries.abort();
    this.options.onOver(this);
  }

  #watch(watcher: RequestWatcher): () => void {
    const watch = new SpreadWatch(watcher, () => this.#watches.delete(watch));
    this.#watches.add(watch);
    for (const endpoint of this.#bound.values()) watch.add(endpoint);
    return () => watch.stop();
  }
}

/** Passes on what is reported of the endpoint in any session, until none reports any more. */
class SpreadWatch {
  readonly #stops = new Map<ConnectedEndpoint, () => void>();

  constructor(
    private readonly watcher: RequestWatcher,
    private readonly onOver: () => void,
  ) {}

  add(endpoint: ConnectedEndpoint): void {
    const stop = endpoint.watchRequests?.({
      onLine: (line) => this.watcher.onLine(line),
      onEnd: () => {
        this.#stops.delete(endpoint);
        if (this.#stops.size > 0) return;
        this.onOver();
        this.watcher.onEnd();
      },
    });
    if (stop) this.#stops.set(endpoint, stop);
  }

  stop(): void {
    this.onOver();
    for (const stop of this.#stops.values()) stop();
  }
}
