import type { Clock } from '../../../lib/time/clock.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';

const TICK_MS = 2000;
/** While a heartbeat is late. */
const LATE_TICK_MS = 500;
/** So long after a heartbeat was due: with 8 s between them, a peer that answers nothing is noticed 20 to 22 s after its last answer. */
const LATE_MS = 12_000;
/** Two of them and a margin, where they are closer. */
const LEAST_SILENT_MS = 20_000;

/**
 * Detects a connection that went silent without closing, which the SDK does not. It counts ticks instead of time, so
 * that a process that was suspended does not blame the gateway for the gap.
 */
export class HeartbeatWatchdog {
  #silentMs = 0;

  constructor(
    private readonly options: {
      clock: Clock;
      progress: ProgressMonitor;
      intervalS: number;
      /** Whether the connection is dead for sure; asked while a heartbeat is late. */
      isDead: () => boolean;
    },
  ) {}

  beat(): void {
    this.#silentMs = 0;
  }

  /** Resolves with the reason when the gateway has been silent for too long; throws AbortError when the signal aborts. */
  async untilSilent(signal: AbortSignal): Promise<string> {
    const { clock, progress, intervalS, isDead } = this.options;
    const enoughMs = Math.max(LEAST_SILENT_MS, intervalS * 1000 + LATE_MS);
    while (this.#silentMs < enoughMs) {
      const isLate = this.#silentMs >= intervalS * 1000;
      const tickMs = isLate ? LATE_TICK_MS : TICK_MS;
      await clock.sleep(tickMs, signal);
      this.#silentMs += tickMs;
      progress.report();
      if (isLate && isDead()) return 'the gateway no longer acknowledges what is sent';
    }
    return 'the gateway no longer answers heartbeats';
  }
}
