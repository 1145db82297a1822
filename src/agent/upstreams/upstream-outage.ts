import type { Log } from '../../lib/log/log.ts';

/** Between two log lines about an upstream that stays unreachable. */
const REPEAT_MS = 10 * 60_000;

/** Logs that an upstream is unreachable: at once, again every 10 minutes while clients ask for it, and when it is back. */
export class UpstreamOutage {
  /** Failed connections that are not logged yet; null while the upstream answers. */
  #times: number | null = null;
  #loggedAt = 0;

  constructor(
    private readonly upstream: string,
    private readonly log: Log,
    private readonly now: () => number = () => performance.now(),
  ) {}

  failed(reason: string): void {
    const { upstream } = this;
    const times = (this.#times ?? 0) + 1;
    if (this.#times !== null && this.now() - this.#loggedAt < REPEAT_MS) {
      this.#times = times;
      return;
    }
    this.#times = 0;
    this.#loggedAt = this.now();
    this.log.warn({ upstream, reason, times }, 'upstream unreachable');
  }

  answered(): void {
    if (this.#times === null) return;
    this.#times = null;
    this.log.info({ upstream: this.upstream }, 'upstream reachable again');
  }
}
