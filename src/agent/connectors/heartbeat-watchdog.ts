import type { Clock } from '../../lib/clock.ts';
import type { Pulse } from './pulse.ts';

/** Seconds between two heartbeats, and what the gateway is told to tolerate on top. */
export const HEARTBEAT_INTERVAL_S = 8;
export const HEARTBEAT_TOLERANCE_S = 10;

const TICK_MS = 2000;
/** Two heartbeats and some patience: a dead link is noticed 20 to 22 s after its last answer. */
const SILENT_TICKS = 10;

/**
 * Notices a link that went silent without a close, which the SDK never does by itself. It counts ticks, not time: a
 * process that was stopped or starved for a while must not take its own absence for the gateway's.
 */
export class HeartbeatWatchdog {
  #ticks = 0;

  constructor(
    private readonly clock: Clock,
    private readonly pulse: Pulse,
  ) {}

  /** The gateway answered a heartbeat. */
  beat(): void {
    this.#ticks = 0;
  }

  /**
   * Resolves when no heartbeat was answered for too long.
   *
   * @throws AbortError when the signal aborts first
   */
  async untilSilent(signal: AbortSignal): Promise<void> {
    while (this.#ticks < SILENT_TICKS) {
      await this.clock.sleep(TICK_MS, signal);
      this.#ticks += 1;
      this.pulse.beat();
    }
  }
}
