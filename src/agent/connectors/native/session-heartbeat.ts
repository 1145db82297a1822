import type { Connection } from '../../../agent-protocol/connection.ts';
import { HeartbeatProbe } from '../../../agent-protocol/heartbeat.ts';
import { StreamType, streamPrefix } from '../../../agent-protocol/messages.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { ProgressMonitor } from '../progress-monitor.ts';

/** Announced to the gateway, which notices a silent agent a second after both: as late as the agent a silent gateway. */
export const HEARTBEAT_INTERVAL_S = 4;
export const HEARTBEAT_TOLERANCE_S = 5;

export const TICK_MS = 1900;
const TICKS_PER_BEAT = 2;
/** A dead link is noticed 7.6 to 9.5 s after its last bytes. */
export const SILENT_TICKS = 4;

/**
 * Sends heartbeats, and notices a connection that went silent without closing. It counts ticks instead of time, so that a
 * process that was suspended does not blame the gateway for the gap. Any bytes count as an answer.
 */
export class SessionHeartbeat {
  readonly #probe: HeartbeatProbe;

  /** Sends the first heartbeat: gateways expect it before anything else. */
  constructor(
    private readonly connection: Connection,
    private readonly clock: Clock,
    private readonly progress: ProgressMonitor,
  ) {
    this.#probe = openProbe(connection);
    this.#beat();
  }

  /**
   * Resolves when the gateway has sent nothing for too long; throws AbortError when the signal aborts.
   *
   * @param onTick called every {@link TICK_MS}
   */
  async untilSilent(signal: AbortSignal, onTick: () => void): Promise<void> {
    let heardAt = this.connection.lastReadAt;
    let silent = 0;
    for (let tick = 1; silent < SILENT_TICKS; tick++) {
      await this.clock.sleep(TICK_MS, signal);
      this.progress.report();
      onTick();
      silent = this.connection.lastReadAt === heardAt ? silent + 1 : 0;
      heardAt = this.connection.lastReadAt;
      if (tick % TICKS_PER_BEAT === 0) this.#beat();
    }
  }

  #beat(): void {
    const sentAt = performance.now();
    void this.#probe.ask(TICK_MS * SILENT_TICKS).then((answered) => {
      const now = performance.now();
      if (answered) this.connection.roundTrip.add(now - sentAt, now);
    });
  }
}

/** Opens the stream for heartbeats. */
export function openProbe(connection: Connection): HeartbeatProbe {
  const channel = connection.channel();
  channel.write(streamPrefix(StreamType.heartbeat));
  const probe = new HeartbeatProbe(channel);
  channel.receiver = probe;
  connection.open(channel);
  return probe;
}
