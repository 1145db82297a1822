import type { Duplex } from 'node:stream';
import { Connection, type ConnectionUser } from '../../../agent-protocol/connection.ts';
import { HeartbeatProbe } from '../../../agent-protocol/heartbeat.ts';
import { StreamType, streamPrefix } from '../../../agent-protocol/messages.ts';
import type { MemoryBudget } from '../../../lib/memory-budget.ts';

/** Announced to the gateway, which notices a silent agent a second after both: as late as the agent a silent gateway. */
export const HEARTBEAT_INTERVAL_S = 4;
export const HEARTBEAT_TOLERANCE_S = 5;

export const TICK_MS = 1900;
const TICKS_PER_BEAT = 2;
/** A dead link is noticed 7.6 to 9.5 s after its last bytes. */
const SILENT_TICKS = 4;

/**
 * One of a session's connections to the gateway. It sends heartbeats, and notices when the connection goes silent without
 * closing. It counts ticks instead of time, so that a process that was suspended does not blame the gateway for the gap. Any
 * bytes count as an answer.
 */
export class SessionLink {
  readonly connection: Connection;
  readonly #probe: HeartbeatProbe;
  #ticks = 0;
  #silent = 0;
  #heardAt: number;

  /**
   * Sends the first heartbeat: gateways expect it before anything else.
   *
   * @param memory what the session's links may hold together
   */
  constructor(socket: Duplex, user: ConnectionUser, memory: MemoryBudget) {
    const connection = new Connection(socket, user, 'agent');
    connection.limitMemory(memory);
    connection.start();
    const channel = connection.channel();
    channel.write(streamPrefix(StreamType.heartbeat));
    this.#probe = new HeartbeatProbe(channel);
    channel.receiver = this.#probe;
    connection.open(channel);
    this.connection = connection;
    this.#heardAt = connection.lastReadAt;
    this.#beat();
  }

  /** Sends a heartbeat when it is due, and closes a connection on which the gateway has sent nothing for too long. */
  tick(): void {
    const { lastReadAt } = this.connection;
    this.#silent = lastReadAt === this.#heardAt ? this.#silent + 1 : 0;
    this.#heardAt = lastReadAt;
    this.#ticks += 1;
    if (this.#silent >= SILENT_TICKS) this.connection.close(new Error('the gateway no longer answers heartbeats'));
    else if (this.#ticks % TICKS_PER_BEAT === 0) this.#beat();
  }

  /** Resolves once the gateway has everything that was sent, or after so many milliseconds. */
  async delivered(ms: number): Promise<void> {
    await this.#probe.ask(ms);
  }

  #beat(): void {
    const sentAt = performance.now();
    void this.#probe.ask(TICK_MS * SILENT_TICKS).then((answered) => {
      const now = performance.now();
      if (answered) this.connection.roundTrip.add(now - sentAt, now);
    });
  }
}
