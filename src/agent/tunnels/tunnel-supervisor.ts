import { ApiError, messageOf } from '../../lib/errors.ts';
import type { Limiter } from '../../lib/limiter.ts';
import { type BackoffPolicy, backoffCeiling, backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { DeadlineExceeded } from '../../lib/time/deadline.ts';
import { type ConnectedEndpoint, type Connector, domainOf } from '../connectors/connector.ts';
import type { AgentContext } from '../context/agent-context.ts';
import { isLabel } from './site-names.ts';
import type { ChangedMembers, Tunnel, TunnelState, TunnelStatus } from './tunnel.ts';

type LastError = TunnelStatus['lastError'];

/** How long an endpoint must stay online before its earlier failures stop counting. */
const STABLE_MS = 30_000;
const RETRY: BackoffPolicy = { baseMs: 500, maxMs: 30_000 };
/** How long other tunnels go first after one attempt without an answer; doubles with each further one. */
const YIELD_MS = 1000;

/**
 * Keeps one tunnel online across lost sessions and endpoints.
 *
 * Its loop does one of three things. With an endpoint it waits until that ends (`online`). Without one it binds, and
 * backs off after each failure (`connecting`, `failed`). Without a session it waits for one (`offline`).
 */
export class TunnelSupervisor {
  readonly #retry: RetrySchedule;
  readonly #wait: InterruptibleWait;
  #tunnel: Tunnel;
  #endpoint: ConnectedEndpoint | null;
  /** Settles when no attempt to bind is under way; never rejects. */
  #attempt: Promise<unknown> = Promise.resolve();
  #status: TunnelStatus;
  #wasOnline: boolean;
  /** Identifies the running loop; null while stopped. */
  #run: symbol | null = null;
  #bindError: unknown = null;
  /** Counts sessions, so that an attempt notices when its own is over. */
  #sessions = 0;

  /** @param endpoint one that is open already; null: there is none yet */
  constructor(
    tunnel: Tunnel,
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    private readonly own: {
      open: () => Promise<ConnectedEndpoint>;
      connector: Pick<Connector, 'isOnline' | 'status'>;
      limiter: Limiter;
      /** Persists a tunnel whose URL has changed. */
      save: (tunnel: Tunnel) => Promise<void>;
      /**
       * Called after the state or the URL has changed.
       *
       * @param isFirst whether the tunnel had not been online before
       */
      changed: (before: TunnelState, isFirst: boolean) => void;
    },
    endpoint: ConnectedEndpoint | null = null,
  ) {
    const { clock } = context;
    this.#tunnel = tunnel;
    this.#endpoint = endpoint;
    this.#status = { state: endpoint ? 'online' : 'connecting', since: new Date(), lastError: null };
    this.#wasOnline = endpoint !== null;
    this.#retry = new RetrySchedule(() => clock.random());
    this.#wait = new InterruptibleWait(clock);
  }

  get url(): string {
    return this.#tunnel.url;
  }

  /** Null while it has none. */
  get endpoint(): ConnectedEndpoint | null {
    return this.#endpoint;
  }

  get tunnel(): Tunnel {
    return this.#tunnel;
  }

  /** What the last attempt to bind threw; null when it succeeded. */
  get bindError(): unknown {
    return this.#bindError;
  }

  /** Takes effect when the endpoint is opened the next time; see {@link reopen}. */
  use(members: ChangedMembers): void {
    this.#tunnel = { ...this.#tunnel, ...members };
  }

  get status(): TunnelStatus {
    const { connector } = this.own;
    if (this.#status.state === 'online' || connector.isOnline) return this.#status;
    // The reason the session is down now is more useful than the one it was lost for.
    const { lastError } = connector.status;
    return lastError ? { ...this.#status, lastError } : this.#status;
  }

  /** Starts or resumes supervision. */
  start(): void {
    this.#run = Symbol('run');
    void this.#loop(this.#run);
  }

  /** Notifies that a session is online: retries at once. */
  sessionOnline(): void {
    this.#sessions++;
    this.retryNow();
  }

  /** Retries at once, because what failed may work now. */
  retryNow(): void {
    this.#retry.reset();
    this.#wait.interrupt();
  }

  /** Notifies that the session is lost, and its endpoints with it. */
  sessionLost(): void {
    if (this.#run === null) return;
    this.#endpoint = null;
    this.#showSessionDown();
    this.#wait.interrupt();
  }

  /** Closes the endpoint until start() is called again; throws when it could not be closed. */
  async close(): Promise<void> {
    this.#endLoop();
    await this.#closeEndpoint();
  }

  /**
   * Closes the endpoint and opens it again, to apply changed policies; start() resumes supervision.
   *
   * @returns why it could not be opened; null when it is online
   * @throws when the endpoint could not be closed
   */
  async reopen(): Promise<LastError> {
    this.#endLoop();
    return this.#try(async () => {
      await this.#closeEndpoint();
      return this.#bind();
    });
  }

  /** Stops supervision for good; the endpoint ends with the session. */
  stop(): void {
    this.#endLoop();
  }

  /** Runs an attempt to bind; {@link #closeEndpoint} waits for its end. */
  #try<T>(bind: () => Promise<T>): Promise<T> {
    const attempt = bind();
    this.#attempt = attempt.catch(() => {});
    return attempt;
  }

  /** Waits for the attempt that is under way, or its endpoint would stay open unnoticed; throws when closing fails. */
  async #closeEndpoint(): Promise<void> {
    await this.#attempt;
    const endpoint = this.#endpoint;
    this.#endpoint = null;
    await endpoint?.close();
  }

  #endLoop(): void {
    this.#run = null;
    this.#wait.interrupt();
  }

  async #loop(run: symbol): Promise<void> {
    while (this.#run === run) {
      if (this.#endpoint) await this.#watch(this.#endpoint);
      else if (this.#isSessionOnline()) await this.#tryToBind(run);
      else await this.#waitForSession();
    }
  }

  async #watch(endpoint: ConnectedEndpoint): Promise<void> {
    const { clock } = this.context;
    this.#set('online', null);
    const onlineSince = clock.now();
    const end = await this.#wait.until(endpoint.ended);
    // Interrupted: the session is lost or the loop has ended.
    if (end === null || this.#endpoint !== endpoint) return;
    this.#endpoint = null;
    // The next session will retry.
    if (!this.#isSessionOnline()) return;
    if (clock.now() - onlineSince >= STABLE_MS) this.#retry.reset();
    if (end.code === null && !this.#retry.hasFailed) {
      // Endpoints notice a lost session before the agent does, so this is not a failure of the tunnel yet.
      this.#set('connecting', end);
      await this.#wait.sleep(this.#retry.nextDelayMs());
    } else {
      await this.#retryLater(end);
    }
  }

  async #tryToBind(run: symbol): Promise<void> {
    const session = this.#sessions;
    const isCurrent = () => this.#run === run && this.#sessions === session;
    if (this.#status.state !== 'failed') this.#set('connecting', this.#status.lastError);
    if (this.#retry.yieldMs > 0) await this.#wait.sleep(this.#retry.yieldMs);
    const error = await this.own.limiter.run(async () => {
      if (!isCurrent() || !this.#isSessionOnline()) return null;
      return this.#try(() => this.#bind());
    });
    if (error === null || !isCurrent()) return;
    // A lost session explains the failure, and the next session will retry.
    if (this.#isSessionOnline()) await this.#retryLater(error);
  }

  /** @returns why it failed; null when the endpoint is online */
  async #bind(): Promise<LastError> {
    let endpoint: ConnectedEndpoint;
    try {
      endpoint = await this.own.open();
    } catch (error) {
      this.#bindError = error;
      this.#retry.bindFailed(error);
      if (!(error instanceof ApiError)) this.context.log.error({ err: error, url: this.url }, 'unexpected bind error');
      return { code: error instanceof ApiError ? error.code : null, message: messageOf(error) };
    }
    this.#bindError = null;
    this.#endpoint = endpoint;
    this.#retry.bound();
    if (endpoint.url !== this.url) await this.#changeUrl(endpoint.url);
    return null;
  }

  /**
   * The gateway gave the same domain another URL, for example because its port was changed, or a tunnel that was declared
   * with a label has got its domain, which it keeps.
   */
  async #changeUrl(url: string): Promise<void> {
    const domain = isLabel(this.#tunnel) ? domainOf(url, this.#tunnel.protocol) : this.#tunnel.domain;
    this.#tunnel = { ...this.#tunnel, url, domain };
    this.own.changed(this.#status.state, !this.#wasOnline);
    await this.own.save(this.#tunnel).catch((err: unknown) => {
      this.context.log.warn({ err, url }, 'new tunnel URL could not be saved; keeping it in memory');
    });
  }

  async #retryLater(error: LastError): Promise<void> {
    if (this.#status.state !== 'failed' || this.#status.lastError?.code !== error?.code) {
      this.context.log.warn({ url: this.url, code: error?.code, reason: error?.message }, 'tunnel failed; retrying');
    }
    this.#set('failed', error);
    await this.#wait.sleep(this.#retry.nextDelayMs());
  }

  async #waitForSession(): Promise<void> {
    this.#showSessionDown();
    await this.#wait.untilInterrupted();
  }

  #showSessionDown(): void {
    const { state, lastError } = this.own.connector.status;
    this.#set(state === 'connecting' ? 'connecting' : 'offline', lastError);
  }

  #isSessionOnline(): boolean {
    return this.own.connector.isOnline;
  }

  #set(state: TunnelState, lastError: LastError): void {
    const before = this.#status;
    const since = before.state === state ? before.since : new Date();
    this.#status = { state, since, lastError };
    if (before.state === state) return;
    const isFirst = !this.#wasOnline;
    this.#wasOnline ||= state === 'online';
    this.own.changed(before.state, isFirst);
  }
}

/** When one tunnel may try to bind again. */
class RetrySchedule {
  #failures = 0;
  /** Attempts in a row that the gateway never answered, over all sessions. */
  #unanswered = 0;

  constructor(private readonly random: () => number) {}

  get hasFailed(): boolean {
    return this.#failures > 0;
  }

  /** Forgets earlier failures, because the next attempt may well succeed. */
  reset(): void {
    this.#failures = 0;
  }

  /** Counts a failure, and returns the milliseconds to wait after it. */
  nextDelayMs(): number {
    return backoffDelay(this.#failures++, RETRY, this.random);
  }

  bound(): void {
    this.#unanswered = 0;
  }

  bindFailed(error: unknown): void {
    if (!(error instanceof ApiError)) return;
    if (error.cause instanceof DeadlineExceeded) this.#unanswered++;
    else if (error.code !== 'ERR_AGENT_OFFLINE') this.#unanswered = 0;
  }

  /**
   * Milliseconds to let other tunnels go first. An attempt without an answer costs the whole session: if it came first
   * on every new session, the tunnels after it would never come up.
   */
  get yieldMs(): number {
    return this.#unanswered === 0 ? 0 : backoffCeiling(this.#unanswered - 1, { baseMs: YIELD_MS, maxMs: RETRY.maxMs });
  }
}

/** The one wait that a loop is in, which others can end early. */
class InterruptibleWait {
  #interrupt: () => void = () => {};

  constructor(private readonly clock: Clock) {}

  interrupt(): void {
    this.#interrupt();
  }

  async sleep(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#interrupt = () => waiting.abort();
    await this.clock.sleep(ms, waiting.signal).catch((reason: unknown) => {
      if (!waiting.signal.aborted) throw reason;
    });
  }

  /** @returns what the promise resolves with; null when interrupted first */
  until<T>(promise: Promise<T>): Promise<T | null> {
    return new Promise((resolve) => {
      this.#interrupt = () => resolve(null);
      void promise.then(resolve);
    });
  }

  async untilInterrupted(): Promise<void> {
    await this.until(new Promise<never>(() => {}));
  }
}
