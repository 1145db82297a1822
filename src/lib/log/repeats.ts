import { BoundedMap } from '../bounded-map.ts';

const QUIET_MS = 60_000;
/** Events remembered; more than this can fill the log. */
const MAX_REMEMBERED = 10_000;

/** Counts events that others can repeat at will, so that each is logged at most once a minute. */
export class Repeats {
  readonly #logged = new BoundedMap<string, { at: number; times: number }>(MAX_REMEMBERED);

  /** @param now milliseconds of a clock that only goes forward */
  constructor(private readonly now: () => number = () => performance.now()) {}

  /**
   * Counts an event.
   *
   * @returns its number of times since it was last logged, when it is due to be logged; otherwise null
   */
  timesDue(event: string): number | null {
    const now = this.now();
    const { at, times } = this.#logged.get(event) ?? { at: Number.NEGATIVE_INFINITY, times: 0 };
    const isDue = now - at >= QUIET_MS;
    this.#logged.set(event, isDue ? { at: now, times: 0 } : { at, times: times + 1 });
    return isDue ? times + 1 : null;
  }
}
