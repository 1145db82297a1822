import type { PolicyPorts } from './ports.ts';

const QUIET_MS = 60_000;

/** Tells of what did not work, at most once a minute for each place: a policy's mistake shows at every request. */
export class TroubleLog {
  readonly #ports: PolicyPorts;
  /** Bounded by the policy's rules and actions, which are the only places. */
  readonly #places = new Map<string, { toldAt: number; times: number }>();

  constructor(ports: PolicyPorts) {
    this.#ports = ports;
  }

  /** @param cause what was thrown, for its stack */
  note(place: string, code: string, message: string, cause?: unknown): void {
    const now = this.#ports.clock.now();
    const entry = this.#places.get(place) ?? { toldAt: Number.NEGATIVE_INFINITY, times: 0 };
    this.#places.set(place, entry);
    entry.times++;
    if (now - entry.toldAt < QUIET_MS) return;
    this.#ports.onTrouble({ place, code, message, times: entry.times, cause });
    entry.toldAt = now;
    entry.times = 0;
  }
}
