import type { PolicyPorts } from './ports.ts';

const QUIET_MS = 60_000;

/** Reports failures at most once a minute for each place: a mistake in a policy fails at every request. */
export class TroubleLog {
  /** Bounded: only the policy's rules and actions are places. */
  readonly #places = new Map<string, { reportedAt: number; times: number }>();

  constructor(private readonly ports: PolicyPorts) {}

  /** @param cause the error, for its stack */
  note(place: string, code: string, message: string, cause?: unknown): void {
    const now = this.ports.clock.now();
    const entry = this.#places.get(place) ?? { reportedAt: Number.NEGATIVE_INFINITY, times: 0 };
    this.#places.set(place, entry);
    entry.times++;
    if (now - entry.reportedAt < QUIET_MS) return;
    this.ports.onTrouble({ place, code, message, times: entry.times, cause });
    entry.reportedAt = now;
    entry.times = 0;
  }
}
