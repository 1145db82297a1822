import { type BackoffPolicy, backoffDelay } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { DeadlineExceeded } from '../../lib/deadline.ts';
import { ApiError, messageOf } from '../../lib/errors.ts';
import type { Limiter } from '../../lib/limiter.ts';
import type { Log } from '../../lib/log.ts';
import type { SessionStatus } from '../connectors/connector.ts';
import type { Tunnel, TunnelState, TunnelStatus } from './tunnel.ts';
import type { OpenTunnel } from './tunnel-opener.ts';

export interface TunnelSupervisorOptions {
  opener: { open: (tunnel: Tunnel) => Promise<OpenTunnel> };
  /** The state of the session, now. */
  session: () => SessionStatus;
  limiter: Limiter;
  clock: Clock;
  log: Log;
  /** Keeps a tunnel whose URL has become another one. */
  save: (tunnel: Tunnel) => Promise<void>;
  /** Called after the state or the URL has changed. */
  changed: (before: TunnelState) => void;
}

type LastError = TunnelStatus['lastError'];

const RETRY: BackoffPolicy = { baseMs: 500, maxMs: 30_000 };
/** Milliseconds that an endpoint has to stay for its failures to be over. */
const STABLE_MS = 30_000;
/** Milliseconds that others have for coming up first, after one attempt that was not answered; twice that after two. */
const STEP_ASIDE_MS = 1000;

/** Keeps one tunnel up for as long as it exists, whatever becomes of the session and its endpoint. */
export class TunnelSupervisor {
  #tunnel: Tunnel;
  #status: TunnelStatus;
  #open: OpenTunnel | null = null;
  /** Identifies the loop that is in charge; null while there is none. */
  #run: symbol | null = null;
  /** Settles when no attempt to bind is under way, nor one to bind anew; never rejects. */
  #binding: Promise<void> = Promise.resolve();
  /** Ends the wait that the loop is in. */
  #interrupt: () => void = () => {};
  #sessions = 0;
  #failures = 0;
  /** Attempts in a row that the gateway never answered, whatever sessions there were. */
  #unanswered = 0;

  constructor(
    tunnel: Tunnel,
    private readonly options: TunnelSupervisorOptions,
  ) {
    this.#tunnel = tunnel;
    this.#status = { state: 'connecting', since: new Date(), lastError: null };
  }

  get url(): string {
    return this.#tunnel.url;
  }

  get tunnel(): Tunnel {
    return this.#tunnel;
  }

  get status(): TunnelStatus {
    const { state, lastError } = this.options.session();
    const waits = state !== 'online' && this.#status.state !== 'online';
    // What keeps the session away now, which is seldom what it was lost for.
    return waits && lastError ? { ...this.#status, lastError } : this.#status;
  }

  /** Starts keeping the tunnel up, from an endpoint that is open already if there is one. */
  keep(open: OpenTunnel | null = this.#open): void {
    this.#open = open;
    this.#run = Symbol('run');
    void this.#loop(this.#run);
  }

  /** To be called when a session has come up: whatever waits tries again at once. */
  sessionOnline(): void {
    this.#sessions++;
    this.tryAgain();
  }

  /** To be called when what failed may work now: it is tried at once. */
  tryAgain(): void {
    this.#failures = 0;
    this.#interrupt();
  }

  /** To be called when the session is lost, and all endpoints with it. */
  sessionLost(): void {
    if (this.#run === null) return;
    this.#dropEndpoint();
    this.#awaitSession();
    this.#interrupt();
  }

  /**
   * Stops keeping the tunnel up and unbinds it; keep() resumes.
   *
   * @throws when the endpoint could not be closed
   */
  async close(): Promise<void> {
    this.#stop();
    // What is being bound right now would be an endpoint that nobody knows of.
    await this.#binding;
    await this.#closeEndpoint();
  }

  /**
   * Closes the endpoint and opens it anew, for what has changed in how tunnels are opened; keep() goes on from there.
   *
   * @returns why it could not be opened; null when it is up
   * @throws when the endpoint could not be closed
   */
  async reopen(): Promise<LastError> {
    this.#stop();
    const attempt = this.#binding.then(async () => {
      await this.#closeEndpoint();
      return this.#bind();
    });
    // From here on a close() waits for what will be open at the end.
    this.#binding = attempt.then(
      () => {},
      () => {},
    );
    return attempt;
  }

  /** Stops keeping the tunnel up for good; its endpoint goes with the session. */
  abandon(): void {
    this.#stop();
    void this.#binding.then(() => this.#dropEndpoint());
  }

  async #closeEndpoint(): Promise<void> {
    const open = this.#open;
    this.#open = null;
    await open?.close();
  }

  #stop(): void {
    this.#run = null;
    this.#interrupt();
  }

  async #loop(run: symbol): Promise<void> {
    while (this.#run === run) {
      if (this.#open) await this.#watch(this.#open);
      else if (this.options.session().state === 'online') await this.#tryToBind(run);
      else await this.#sleepUntilSession();
    }
  }

  /** Waits until the endpoint ends. */
  async #watch(open: OpenTunnel): Promise<void> {
    const { clock } = this.options;
    this.#set('online', null);
    const upSince = clock.now();
    const end = await this.#interruptible(open.endpoint.ended);
    // Interrupted: the session was lost or the loop is over.
    if (end === null || this.#open !== open) return;
    this.#dropEndpoint();
    // With the session gone as well, its return will be the time to try again.
    if (this.options.session().state !== 'online') return;
    if (clock.now() - upSince >= STABLE_MS) this.#failures = 0;
    if (end.code === null && this.#failures === 0) {
      // An endpoint learns of a lost session before the agent does: no failure of this tunnel yet.
      this.#set('connecting', end);
      await this.#pause();
    } else {
      await this.#retryLater(end);
    }
  }

  async #tryToBind(run: symbol): Promise<void> {
    const session = this.#sessions;
    if (this.#status.state !== 'failed') this.#set('connecting', this.#status.lastError);
    await this.#letOthersGoFirst();
    const error = await this.options.limiter.run(async () => {
      if (this.#run !== run || this.#sessions !== session || this.options.session().state !== 'online') return null;
      const attempt = this.#bind();
      this.#binding = attempt.then(() => {});
      return attempt;
    });
    if (error === null || this.#run !== run || this.#sessions !== session) return;
    // A session that is gone explains the failure, and its return will be the time to try again.
    if (this.options.session().state === 'online') await this.#retryLater(error);
  }

  /** @returns why it failed; null when the endpoint is up */
  async #bind(): Promise<LastError> {
    try {
      this.#open = await this.options.opener.open(this.#tunnel);
    } catch (error) {
      this.#countSilence(error);
      if (!(error instanceof ApiError)) this.options.log.error({ err: error, url: this.#tunnel.url }, 'cannot bind');
      return { code: error instanceof ApiError ? error.code : null, message: messageOf(error) };
    }
    this.#unanswered = 0;
    const { url } = this.#open.endpoint;
    if (url !== this.#tunnel.url) await this.#moveTo(url);
    return null;
  }

  #countSilence(error: unknown): void {
    if (!(error instanceof ApiError)) return;
    if (error.cause instanceof DeadlineExceeded) this.#unanswered++;
    else if (error.code !== 'ERR_AGENT_OFFLINE') this.#unanswered = 0;
  }

  /**
   * An attempt without an answer costs the whole session. Were it the first one on the next session again, the tunnels
   * behind it would never come up.
   */
  async #letOthersGoFirst(): Promise<void> {
    if (this.#unanswered > 0) await this.#sleep(Math.min(RETRY.maxMs, STEP_ASIDE_MS * 2 ** (this.#unanswered - 1)));
  }

  /** The gateway gave the same name another URL, such as after its port was changed. */
  async #moveTo(url: string): Promise<void> {
    this.#tunnel = { ...this.#tunnel, url };
    this.options.changed(this.#status.state);
    await this.options.save(this.#tunnel).catch((err: unknown) => {
      this.options.log.warn({ err, url }, 'the new URL of a tunnel could not be saved; it is kept in memory');
    });
  }

  async #retryLater(error: LastError): Promise<void> {
    const { log } = this.options;
    const { url } = this.#tunnel;
    if (this.#status.state !== 'failed' || this.#status.lastError?.code !== error?.code) {
      log.warn({ url, code: error?.code, reason: error?.message }, 'tunnel failed; it is tried again');
    }
    this.#set('failed', error);
    await this.#pause();
  }

  /** Waits the longer the more failures there were, or until interrupted. */
  #pause(): Promise<void> {
    const { clock } = this.options;
    return this.#sleep(backoffDelay(this.#failures++, RETRY, () => clock.random()));
  }

  /** Waits for so many milliseconds, or until interrupted. */
  async #sleep(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#interrupt = () => waiting.abort();
    await this.options.clock.sleep(ms, waiting.signal).catch((reason: unknown) => {
      if (!waiting.signal.aborted) throw reason;
    });
  }

  async #sleepUntilSession(): Promise<void> {
    this.#awaitSession();
    await this.#interruptible(new Promise(() => {}));
  }

  #awaitSession(): void {
    const { state, lastError } = this.options.session();
    this.#set(state === 'connecting' ? 'connecting' : 'offline', lastError);
  }

  #dropEndpoint(): void {
    this.#open?.release().catch((err: unknown) => {
      this.options.log.warn({ err, url: this.#tunnel.url }, 'a relay could not be closed');
    });
    this.#open = null;
  }

  #set(state: TunnelState, lastError: LastError): void {
    const before = this.#status;
    const since = before.state === state ? before.since : new Date();
    this.#status = { state, since, lastError };
    if (before.state === state) return;
    this.options.changed(before.state);
    if (before.state === 'failed' && state === 'online') {
      this.options.log.info({ url: this.#tunnel.url }, 'tunnel is online again');
    }
  }

  /** @returns what the promise resolves with; null when interrupted before */
  #interruptible<T>(promise: Promise<T>): Promise<T | null> {
    return new Promise((resolve) => {
      this.#interrupt = () => resolve(null);
      void promise.then(resolve);
    });
  }
}
