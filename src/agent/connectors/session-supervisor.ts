import { backoffDelay } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { withDeadline, withOwnSignal } from '../../lib/deadline.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { SessionState, SessionStatus } from './connector.ts';
import { type GatewaySession, SessionRefused } from './gateway-session.ts';
import { OutageLog } from './outage-log.ts';
import type { ProbeAnswer } from './probe.ts';
import type { Pulse } from './pulse.ts';
import { type Probe, untilReachable } from './reconnect-delay.ts';

const BACKOFF = { baseMs: 500, maxMs: 30_000 };
/** A session that lived this long, in milliseconds, shows that all is well again. */
const STABLE_MS = 30_000;
const CONNECT_DEADLINE_MS = 20_000;
/** Attempts that neither failed nor came about: the SDK has no way to give one up. */
const MAX_PENDING = 8;
const PENDING_CHECK_MS = 5000;
/** So long, in milliseconds, further ones wait for them: some never end, as when a mobile network forgot the connection. */
const PENDING_PATIENCE_MS = 15 * 60_000;

export interface SupervisorDeps {
  /** Shown in the status, `host:port`. */
  gateway: string;
  probe: Probe;
  /** Starts one session; rejects with {@link SessionRefused}, or never settles. */
  connect(): Promise<GatewaySession>;
  online(): void;
  offline(): void;
  clock: Clock;
  /** Beaten with every step of the search; while a session is up, that is for the session to do. */
  pulse: Pulse;
  log: Log;
}

/** Keeps one session with the gateway, for ever and without hammering. */
export class SessionSupervisor {
  readonly #stopping = new AbortController();
  readonly #outage: OutageLog;
  #running: Promise<void> | null = null;
  #session: GatewaySession | null = null;
  #status: SessionStatus;
  #sessions = 0;
  /** Attempts and short-lived sessions in a row that came to nothing although the gateway could be reached. */
  #failures = 0;
  #pending = 0;
  /** Takes the next session, whichever attempt it comes from; null while one is up. */
  #arrive: ((session: GatewaySession) => void) | null = null;

  constructor(private readonly deps: SupervisorDeps) {
    this.#outage = new OutageLog(deps.clock, deps.log);
    this.#status = { state: 'connecting', since: new Date(), gateway: deps.gateway, reconnects: 0, lastError: null };
  }

  get status(): SessionStatus {
    return this.#status;
  }

  /** The session that is up, or null. */
  get session(): GatewaySession | null {
    return this.#session;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Ends the session and all attempts. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#session?.close();
    await this.#running;
    this.#change('stopped');
  }

  async #run(): Promise<void> {
    try {
      for (;;) {
        this.#outage.begin();
        const session = await this.#establish();
        const upSince = this.deps.clock.now();
        this.#up(session);
        const reason = await session.lost;
        this.#down(reason);
        this.#failures = this.deps.clock.now() - upSince >= STABLE_MS ? 0 : this.#failures + 1;
        await this.#pause(this.#stopping.signal);
      }
    } catch (error) {
      if (!this.#stopping.signal.aborted) throw error;
    }
  }

  #up(session: GatewaySession): void {
    this.#session = session;
    this.#sessions += 1;
    this.#change('online', { reconnects: this.#sessions - 1, lastError: null });
    const after_s = this.#outage.end();
    this.deps.log.info({ gateway: this.deps.gateway, after_s }, 'session online');
    this.deps.online();
  }

  #down(reason: string): void {
    this.#session = null;
    this.#change('offline', { lastError: { code: null, message: reason } });
    if (!this.#stopping.signal.aborted) this.deps.log.warn({ reason }, 'session lost');
    this.deps.offline();
  }

  #change(state: SessionState, more: Partial<SessionStatus> = {}): void {
    const since = state === this.#status.state ? this.#status.since : new Date();
    this.#status = { ...this.#status, ...more, state, since };
  }

  /**
   * Waits for a session, from whichever attempt. One that comes after its deadline is as welcome as any other: where
   * IPv6 leads nowhere, the SDK needs the two minutes in which the kernel gives up before it tries IPv4.
   */
  #establish(): Promise<GatewaySession> {
    return withOwnSignal(this.#stopping.signal, (searching) => {
      return new Promise<GatewaySession>((resolve, reject) => {
        this.#arrive = resolve;
        this.#search(searching).catch(reject);
        // An attempt that is under way cannot be called off, and is not waited for.
        searching.addEventListener('abort', () => reject(searching.reason));
      }).finally(() => {
        this.#arrive = null;
      });
    });
  }

  /** Makes attempt after attempt, until the signal aborts. */
  async #search(signal: AbortSignal): Promise<never> {
    for (;;) {
      this.deps.pulse.beat();
      const answer = await this.#reach(signal);
      this.deps.pulse.beat();
      await this.#awaitPending(signal);
      try {
        await withDeadline(this.#attempt(), 'starting a session', CONNECT_DEADLINE_MS, undefined, this.deps.clock);
      } catch (error) {
        // Nobody has waited for this one since then.
        signal.throwIfAborted();
        const code = error instanceof SessionRefused ? error.code : null;
        this.#failures += 1;
        this.#failed(code, code === null ? describe(error, answer) : messageOf(error));
      }
      await this.#pause(signal);
    }
  }

  async #reach(signal: AbortSignal): Promise<ProbeAnswer> {
    const { probe, clock } = this.deps;
    return untilReachable(probe, clock, signal, (error) => {
      // What failed before says nothing about the gateway that will be found behind this outage.
      this.#failures = 0;
      this.#failed(null, messageOf(error));
    });
  }

  async #awaitPending(signal: AbortSignal): Promise<void> {
    const { clock } = this.deps;
    const until = clock.now() + PENDING_PATIENCE_MS;
    while (this.#pending >= MAX_PENDING && clock.now() < until) {
      this.#failed(
        null,
        `${this.#pending} attempts are pending; the next one waits until one of them ends, 15 min at most`,
      );
      await clock.sleep(PENDING_CHECK_MS, signal);
    }
  }

  async #attempt(): Promise<void> {
    this.#pending += 1;
    try {
      const session = await this.deps.connect();
      if (this.#arrive) {
        this.#arrive(session);
        this.#arrive = null;
      } else {
        await session.close();
      }
    } finally {
      this.#pending -= 1;
    }
  }

  #pause(signal: AbortSignal): Promise<void> {
    const { clock } = this.deps;
    return clock.sleep(backoffDelay(this.#failures, BACKOFF, clock.random), signal);
  }

  #failed(code: string | null, message: string): void {
    this.deps.pulse.beat();
    this.#status = { ...this.#status, lastError: { code, message } };
    this.#outage.failure(message, code);
  }
}

function describe(error: unknown, answer: ProbeAnswer): string {
  const certificate = answer.certificate ?? 'no certificate at all';
  return `${messageOf(error)} (who answers there presents ${certificate})`;
}
