import type { Clock } from '../../../lib/time/clock.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';

const TICK_MS = 2000;
/** Two heartbeats and a margin: a peer that answers nothing is noticed 20 to 22 s after its last answer. */
const SILENT_TICKS = 10;

export interface HeartbeatWatchdogOptions {
  clock: Clock;
  progress: ProgressMonitor;
  intervalS: number;
  /** Whether the connection is dead for sure; asked while a heartbeat is late. */
  isDead: () => boolean;
}

/**
 * Detects a connection that went silent without closing, which the SDK does not. It counts ticks instead of time, so
 * that a process that was suspended does not blame the gateway for the gap.
 */
export class HeartbeatWatchdog {
  #ticks = 0;

  constructor(private readonly options: HeartbeatWatchdogOptions) {}

  beat(): void {
    this.#ticks = 0;
  }

  /** Resolves with the reason when the gateway has been silent for too long; throws AbortError when the signal aborts. */
  async untilSilent(signal: AbortSignal): Promise<string> {
    const { clock, progress, intervalS, isDead } = this.options;
    while (this.#ticks < SILENT_TICKS) {
      await clock.sleep(TICK_MS, signal);
      this.#ticks += 1;
      progress.report();
      if (this.#ticks * TICK_MS > intervalS * 1000 && isDead())
        return 'the gateway no longer acknowledges what is sent';
    }
    return 'the gateway no longer answers heartbeats';
  }
}
