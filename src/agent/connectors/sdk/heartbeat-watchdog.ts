import type { Clock } from '../../../lib/time/clock.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';

const TICK_MS = 2000;
/** Two heartbeats and a margin: a dead link is noticed 20 to 22 s after its last answer. */
const SILENT_TICKS = 10;

/**
 * Detects a connection that went silent without closing, which the SDK does not. It counts ticks instead of time, so
 * that a process that was suspended does not blame the gateway for the gap.
 */
export class HeartbeatWatchdog {
  #ticks = 0;

  constructor(
    private readonly clock: Clock,
    private readonly progress: ProgressMonitor,
  ) {}

  beat(): void {
    this.#ticks = 0;
  }

  /** Resolves when heartbeats have gone unanswered for too long; throws AbortError when the signal aborts. */
  async untilSilent(signal: AbortSignal): Promise<void> {
    while (this.#ticks < SILENT_TICKS) {
      await this.clock.sleep(TICK_MS, signal);
      this.#ticks += 1;
      this.progress.report();
    }
  }
}
