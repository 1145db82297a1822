import type { Clock } from '../../../lib/time/clock.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';

const TICK_MS = 2000;
/** While a heartbeat is late. */
const LATE_TICK_MS = 500;
/** Two heartbeats and a margin: a peer that answers nothing is noticed 20 to 22 s after its last answer. */
const SILENT_MS = 20_000;

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
    while (this.#silentMs < SILENT_MS) {
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
