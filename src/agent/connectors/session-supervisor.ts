import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { type BackoffPolicy, backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { withDeadline, withOwnSignal } from '../../lib/time/deadline.ts';
import type { SessionState, SessionStatus } from './connector.ts';
import { type GatewaySession, SessionRefused } from './gateway-link.ts';
import { type GatewayProbe, type ProbeAnswer, trustedOnly, waitUntilReachable } from './gateway-probe.ts';
import { OutageLog } from './outage-log.ts';
import type { ProgressMonitor } from './progress-monitor.ts';
import { type FindRoute, untilRouteChanges } from './route-watch.ts';

/** After attempts that the gateway refused, or whose certificate is not trusted. */
const REFUSED = { baseMs: 500, maxMs: 30_000 };
/** After attempts that broke off: a bad link is more likely than a gateway that does not want this device. */
const BROKEN_OFF = { baseMs: 500, maxMs: 5_000 };
/** After a session: the next attempt follows within half a second. */
const FIRST = { baseMs: 500, maxMs: 500 };
/**
 * After so many sessions have ended within so many milliseconds, the next attempt follows after a pause. An update of a gateway may
 * end three: when it is emptied, when the process that passed the session on ends, and when it gets agents back.
 */
const QUICK_ENDS = 5;
const QUICK_MS = 30_000;
const PAUSE_MS = 1_000;
/** The supervisor reports progress at least so often, or its program is restarted. */
const REPORT_MS = 20_000;
const CONNECT_DEADLINE_MS = 20_000;
/** Pending attempts at a time: the SDK cannot abort one. */
const MAX_PENDING = 8;
const PENDING_CHECK_MS = 5000;
/** How long new attempts wait for pending ones. Some never end, as when a mobile network dropped the connection. */
const PENDING_PATIENCE_MS = 15 * 60_000;

/** Keeps one session with the gateway, with backoff between attempts. */
export class SessionSupervisor {
  readonly #stopping = new AbortController();
  readonly #outage: OutageLog;
  #running: Promise<void> | null = null;
  #session: GatewaySession | null = null;
  #status: SessionStatus;
  #sessions = 0;
  /** Failed attempts in a row, since the last session, while the gateway was reachable. */
  #failures = 0;
  #pending = 0;
  /** When sessions have ended lately. */
  #ends: readonly number[] = [];
  /** Where the last attempt connected to. */
  #peer: string | null = null;
  /** Takes the next session, whichever attempt it is from; null while one is online. */
  #accept: ((session: GatewaySession) => void) | null = null;

  constructor(
    private readonly deps: {
      /** Shown in the status, `host:port`. */
      gateway: string;
      probe: GatewayProbe;
      /** Starts one session; rejects with {@link SessionRefused}, or never settles. */
      connect(): Promise<GatewaySession>;
      /** Finds routes for one session at a time. */
      findRoute: () => FindRoute;
      online(session: GatewaySession): void;
      offline(session: GatewaySession): void;
      /** The device has another way to the gateway: connections that were made before are dead. */
      routeChanged?(reason: string): void;
      clock: Clock;
      /** Whether data on the way to the gateway costs money. */
      isMetered?: boolean;
      /** Receives every attempt; an established session reports its own progress, every two seconds. */
      progress: ProgressMonitor;
      log: Log;
    },
  ) {
    this.#outage = new OutageLog(deps.clock, deps.log);
    this.#status = { state: 'connecting', since: new Date(), gateway: deps.gateway, reconnects: 0, lastError: null };
  }

  get status(): SessionStatus {
    return this.#status;
  }

  get session(): GatewaySession | null {
    return this.#session;
  }

  start(): void {
    this.#running ??= this.#run();
  }

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
        // stop() did not know of it.
        if (this.#stopping.signal.aborted) return await session.close();
        this.#online(session);
        const reason = await this.#untilLost(session);
        this.#lost(session, reason);
        this.#failures = 0;
        const { signal } = this.#stopping;
        await (this.#endsOften() ? this.#pause(signal) : this.#backOff(FIRST, signal));
      }
    } catch (error) {
      if (!this.#stopping.signal.aborted) throw error;
    }
  }

  /** Notes that a session has ended. */
  #endsOften(): boolean {
    const now = this.deps.clock.now();
    this.#ends = [...this.#ends.filter((at) => now - at < QUICK_MS), now];
    return this.#ends.length >= QUICK_ENDS;
  }

  #untilLost(session: GatewaySession): Promise<string> {
    return withOwnSignal(this.#stopping.signal, (over) => {
      const { findRoute, progress } = this.deps;
      if (this.#peer !== null) {
        untilRouteChanges(this.#peer, findRoute(), () => progress.next(over)).then(
          (reason) => {
            this.deps.routeChanged?.(reason);
            session.end(reason);
          },
          () => {}, // aborted: the session is over already
        );
      }
      return session.lost;
    });
  }

  #online(session: GatewaySession): void {
    this.#session = session;
    this.#sessions += 1;
    this.#change('online', { reconnects: this.#sessions - 1, lastError: null });
    const after_s = this.#outage.end();
    this.deps.log.info({ gateway: this.deps.gateway, after_s }, 'session online');
    this.deps.online(session);
  }

  #lost(session: GatewaySession, reason: string): void {
    this.#session = null;
    this.#change('offline', { lastError: { code: null, message: reason } });
    if (!this.#stopping.signal.aborted) this.deps.log.warn({ reason }, 'session lost');
    this.deps.offline(session);
  }

  #change(state: SessionState, more: Partial<SessionStatus> = {}): void {
    const since = state === this.#status.state ? this.#status.since : new Date();
    this.#status = { ...this.#status, ...more, state, since };
  }

  /**
   * Waits for a session from any attempt, even after its deadline. Where IPv6 is broken, the SDK only tries IPv4 once the
   * kernel gives up on IPv6 after two minutes.
   */
  #establish(): Promise<GatewaySession> {
    return withOwnSignal(this.#stopping.signal, (attempting) => {
      return new Promise<GatewaySession>((resolve, reject) => {
        this.#accept = resolve;
        this.#attemptUntilOnline(attempting).catch(reject);
        // A pending attempt cannot be aborted, so nothing waits for it.
        attempting.addEventListener('abort', () => reject(attempting.reason));
      }).finally(() => {
        this.#accept = null;
      });
    });
  }

  async #attemptUntilOnline(signal: AbortSignal): Promise<never> {
    for (;;) {
      this.deps.progress.report();
      const answer = await this.#waitUntilReachable(signal);
      this.#peer = answer.peer;
      this.deps.progress.report();
      await this.#awaitPending(signal);
      try {
        await withDeadline(this.#attempt(), 'starting a session', CONNECT_DEADLINE_MS, undefined, this.deps.clock);
        // Its session ends this loop.
        await this.#pause(signal);
      } catch (error) {
        // Another attempt has succeeded meanwhile.
        signal.throwIfAborted();
        await this.#untilNextAttempt(error, answer, signal);
      }
    }
  }

  async #untilNextAttempt(error: unknown, answer: ProbeAnswer, signal: AbortSignal): Promise<void> {
    const code = error instanceof SessionRefused ? error.code : null;
    this.#failures += 1;
    this.#noteFailure(code, code === null ? describe(error, answer) : messageOf(error));
    const retryAfterS = error instanceof SessionRefused ? error.retryAfterS : null;
    if (retryAfterS !== null) return this.#stayAway(retryAfterS, signal);
    if (code !== null) return this.#backOff(REFUSED, signal);
    return answer.problem === null ? this.#backOff(BROKEN_OFF, signal) : this.#untilTrusted(signal);
  }

  /**
   * Waits until the probe trusts what answers, so that the device is back soon after a captive portal or a wrong clock. Waits
   * no longer than a backoff, in case the SDK trusts more than the probe.
   */
  async #untilTrusted(signal: AbortSignal): Promise<void> {
    const { probe } = this.deps;
    await withOwnSignal(signal, (over) => {
      const trusted = async () => {
        await this.#pause(over);
        await waitUntilReachable(trustedOnly(probe), this.deps, over, () => this.deps.progress.report());
      };
      return Promise.race([trusted(), this.#backOff(REFUSED, over)]);
    });
  }

  async #waitUntilReachable(signal: AbortSignal): Promise<ProbeAnswer> {
    return waitUntilReachable(this.deps.probe, this.deps, signal, (error) => {
      // Earlier failures say nothing about the gateway after this outage.
      this.#failures = 0;
      this.#noteFailure(null, messageOf(error));
    });
  }

  /** Reports no progress: an SDK whose threads are stuck works again in a new process only, which the watchdog starts. */
  async #awaitPending(signal: AbortSignal): Promise<void> {
    const { clock } = this.deps;
    const until = clock.now() + PENDING_PATIENCE_MS;
    while (this.#pending >= MAX_PENDING && clock.now() < until) {
      this.#showFailure(
        null,
        `${this.#pending} attempts are pending; the next one waits for one of them, 15 min at most; restart the agent if this lasts`,
      );
      await clock.sleep(PENDING_CHECK_MS, signal);
    }
  }

  async #attempt(): Promise<void> {
    this.#pending += 1;
    try {
      const session = await this.deps.connect();
      if (this.#accept && !this.#stopping.signal.aborted) {
        this.#accept(session);
        this.#accept = null;
      } else {
        await session.close();
      }
    } finally {
      this.#pending -= 1;
    }
  }

  #backOff(policy: BackoffPolicy, signal: AbortSignal): Promise<void> {
    const { clock } = this.deps;
    return clock.sleep(backoffDelay(this.#failures, policy, clock.random), signal);
  }

  /** Up to half as long again as the gateway wants, so that a fleet does not retry in step. */
  async #stayAway(seconds: number, signal: AbortSignal): Promise<void> {
    const { clock, progress } = this.deps;
    const until = clock.now() + 1000 * seconds * (1 + clock.random() / 2);
    for (let left = until - clock.now(); left > 0; left = until - clock.now()) {
      await clock.sleep(Math.min(left, REPORT_MS), signal);
      progress.report();
    }
  }

  /** One to two seconds, so that a fleet does not retry in step. */
  #pause(signal: AbortSignal): Promise<void> {
    const { clock } = this.deps;
    return clock.sleep(PAUSE_MS * (1 + clock.random()), signal);
  }

  #noteFailure(code: string | null, message: string): void {
    this.deps.progress.report();
    this.#showFailure(code, message);
  }

  #showFailure(code: string | null, message: string): void {
    this.#status = { ...this.#status, lastError: { code, message } };
    this.#outage.failure(message, code);
  }
}

function describe(error: unknown, answer: ProbeAnswer): string {
  const { certificate, problem } = answer;
  return `${messageOf(error)} (certificate presented at its address: ${certificate ?? 'none'})${problem ? `: ${problem}` : ''}`;
}
