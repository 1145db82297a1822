import type { Socket } from 'node:net';
import type { Clock } from '../../lib/time/clock.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import type { Upstream } from './upstream.ts';
import type { UpstreamHealth, UpstreamHealths } from './upstream-health.ts';

export interface UpstreamMonitorOptions {
  healths: UpstreamHealths;
  /** Connects to an upstream as a tunnel would; has a deadline. */
  connect: (upstream: Upstream) => Promise<Socket>;
  /** Whether clients can arrive. Without a session, checks would only wake the device. */
  isOnline: () => boolean;
  clock: Clock;
}

/** Checks come in batches: a device that sleeps between them needs less power. */
const BATCH_MS = 15_000;
/** Batches that check every upstream once. */
const BATCHES = 4;
const MAX_BATCH = 64;
/** Traffic or a check that is younger than this makes another check superfluous. */
const FRESH_MS = 25_000;
/** The same while somebody looks, who may just have started the upstream. */
const FRESH_FOR_READER_MS = 3_000;
const READER_WAIT_MS = 300;

/**
 * Checks upstreams without traffic by a connection that carries no data: each one every 30 to 60 seconds, with more than 256
 * of them less often.
 */
export class UpstreamMonitor {
  readonly #stopped = new AbortController();
  readonly #checks = new Map<UpstreamHealth, Promise<void>>();

  constructor(private readonly options: UpstreamMonitorOptions) {}

  start(): void {
    this.#loop().catch(() => {}); // aborted by stop()
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** Checks what was not checked in the last seconds, and waits shortly for the results. */
  async refresh(): Promise<void> {
    if (!this.options.isOnline()) return;
    const checks = this.#oldest(FRESH_FOR_READER_MS, MAX_BATCH).map((health) => this.#check(health));
    if (checks.length === 0) return;
    await withDeadline(Promise.all(checks), 'checking upstreams', READER_WAIT_MS).catch(() => {}); // still old, and dated
  }

  async #loop(): Promise<void> {
    const { clock, healths, isOnline } = this.options;
    for (;;) {
      await clock.sleep(BATCH_MS, this.#stopped.signal);
      if (!isOnline()) continue;
      const size = Math.min(MAX_BATCH, Math.ceil(healths.size / BATCHES));
      for (const health of this.#oldest(FRESH_MS, size)) void this.#check(health);
    }
  }

  #oldest(olderThanMs: number, max: number): UpstreamHealth[] {
    return this.options.healths
      .values()
      .filter(({ ageMs }) => ageMs >= olderThanMs)
      .sort((a, b) => b.ageMs - a.ageMs || 0)
      .slice(0, max);
  }

  #check(health: UpstreamHealth): Promise<void> {
    const running = this.#checks.get(health);
    if (running) return running;
    const check = this.options
      .connect(health.upstream)
      .then(
        (socket) => {
          socket.destroy();
          health.answered();
        },
        (error: unknown) => {
          // A session that ended meanwhile may have taken the network with it.
          if (this.options.isOnline() && !this.#stopped.signal.aborted) health.failed(error, false);
        },
      )
      .finally(() => this.#checks.delete(health));
    this.#checks.set(health, check);
    return check;
  }
}
