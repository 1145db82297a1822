import { type RecentCounts, RecentFailures } from '../../lib/time/recent-failures.ts';

/** How long errors count as recent. */
const RECENT_MS = 5 * 60_000;

/**
 * How requests end, in the order in which they are counted: with a status of this class; refused by a policy or a restriction; or
 * without a response of the upstream.
 */
export const ENDINGS = ['s1xx', 's2xx', 's3xx', 's4xx', 's5xx', 'refused', 'failed'] as const;
export type Ending = (typeof ENDINGS)[number];

/** Upper bounds of the classes of latency, in milliseconds; one more class has what takes longer. */
export const LATENCY_BOUNDS = [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000] as const;
export const LATENCY_CLASSES = LATENCY_BOUNDS.length + 1;

/** What a request is refused by when no action says so. */
const RESTRICTION = 'restriction';

/** What is counted of requests that have ended: by their endings, and then by their latency. */
export class EndedRequests {
  readonly counts = new Float64Array(ENDINGS.length + LATENCY_CLASSES);
  /** By type of action; null: none was refused. */
  refusals: Map<string, number> | null = null;

  /** @param ms null: it has no latency */
  add(ending: number, ms: number | null): void {
    this.counts[ending] = (this.counts[ending] ?? 0) + 1;
    if (ms === null) return;
    const place = ENDINGS.length + latencyClass(ms);
    this.counts[place] = (this.counts[place] ?? 0) + 1;
  }

  addRefusal(action: string): void {
    this.refusals ??= new Map();
    this.refusals.set(action, (this.refusals.get(action) ?? 0) + 1);
  }
}

/**
 * The latency that a share of the requests does not exceed, in milliseconds: interpolated within its class; null without
 * requests. @param classes how many requests each class of latency has @param share such as 0.95
 */
export function latencyOf(classes: Float64Array, share: number): number | null {
  const total = classes.reduce((sum, each) => sum + each, 0);
  if (total === 0) return null;
  let below = 0;
  for (let at = 0; at < classes.length; at++) {
    const here = classes[at] ?? 0;
    if (here > 0 && below + here >= share * total) {
      const [from, to] = [LATENCY_BOUNDS[at - 1] ?? 0, LATENCY_BOUNDS[at]];
      // Nobody knows how long the slowest have taken.
      return to === undefined ? from : Math.round(from + ((to - from) * (share * total - below)) / here);
    }
    below += here;
  }
  return null;
}

function latencyClass(ms: number): number {
  let at = 0;
  while (at < LATENCY_BOUNDS.length && ms > (LATENCY_BOUNDS[at] ?? 0)) at += 1;
  return at;
}

/** Latency of the last minutes: what was counted until two moments, between which at least half of the time has passed. */
export class RecentLatency {
  #earlier: Float64Array | null = null;
  #latest: Float64Array;

  constructor(
    counts: Float64Array,
    private at: number,
  ) {
    this.#latest = classesIn(counts);
  }

  /** @param counts before a request is counted @param now milliseconds that never go back */
  mark(counts: Float64Array, now: number): void {
    if (now - this.at < RECENT_MS / 2) return;
    this.#earlier = now - this.at < RECENT_MS ? this.#latest : null;
    this.#latest = classesIn(counts);
    this.at = now;
  }

  /** How many requests of the last minutes each class of latency has. */
  counts(counts: Float64Array, now: number): Float64Array {
    const all = classesIn(counts);
    // Nothing was counted since for as long.
    if (now - this.at >= RECENT_MS) return all.fill(0);
    const before = this.#earlier ?? this.#latest;
    return all.map((count, at) => count - (before[at] ?? 0));
  }
}

const classesIn = (counts: Float64Array): Float64Array => counts.slice(ENDINGS.length);
const NO_LATENCY = new Float64Array(LATENCY_CLASSES);

const REFUSED = ENDINGS.indexOf('refused');
const FAILED = ENDINGS.indexOf('failed');

/** Counts since the endpoint came online. Counting must not slow requests down. */
export class EndpointTraffic {
  /** Requests; for tcp and tls endpoints, connections. */
  requests = 0;
  /** When the last of them came, in milliseconds since the Unix epoch; 0: never. */
  lastAt = 0;
  /** Requests without a complete response of the upstream, or with status 5xx. */
  errors = 0;
  /** Requests whose clients have left before there was a response. */
  abandoned = 0;
  /** Bytes from clients to the upstream, as its streams carry them; so is `sent`. */
  received = 0;
  sent = 0;
  /** Null: none has ended. */
  ended: EndedRequests | null = null;
  /** Null: it has never had an error. */
  #recent: RecentFailures | null = null;
  #recentLatency: RecentLatency | null = null;
  /** Class of latency of its slowest response. */
  #slowest = 0;

  countRequest(): void {
    this.requests += 1;
    this.lastAt = Date.now();
  }

  countError(): void {
    this.errors += 1;
    this.#recent ??= new RecentFailures(RECENT_MS);
    this.#recent.add(this.requests, this.errors, performance.now());
  }

  /** @param status of the response that the client gets @param ms from the request to the head of the response */
  countResponse(status: number, ms: number): void {
    const ended = this.#ended();
    const now = performance.now();
    this.#recentLatency ??= new RecentLatency(ended.counts, now);
    this.#recentLatency.mark(ended.counts, now);
    ended.add(Math.trunc(status / 100) - 1, ms);
    this.#slowest = Math.max(this.#slowest, latencyClass(ms));
  }

  /** The upstream has no response for the client. */
  countFailure(ms: number): void {
    this.#ended().add(FAILED, ms);
  }

  /** @param action the type of the action that refused it; undefined: it was none @param ms null: of a connection */
  countRefusal(action: string | undefined, ms: number | null): void {
    const ended = this.#ended();
    ended.add(REFUSED, ms);
    ended.addRefusal(action ?? RESTRICTION);
  }

  /** Errors and refusals that clients have met, and responses that they have not waited for. */
  get troubles(): number {
    return this.errors + this.abandoned + (this.ended?.counts[REFUSED] ?? 0) + (this.ended?.counts[FAILED] ?? 0);
  }

  #ended(): EndedRequests {
    this.ended ??= new EndedRequests();
    return this.ended;
  }

  /** How many requests of the last minutes each class of latency has. Do not change it. */
  get recentLatency(): Float64Array {
    return (this.ended && this.#recentLatency?.counts(this.ended.counts, performance.now())) ?? NO_LATENCY;
  }

  /** Whether it has ever had an error, or a response with about this latency: of most, no more has to be looked at. */
  hasHadTrouble(latencyMs: number): boolean {
    return this.#recent !== null || (this.#slowest > 0 && this.#slowest >= latencyClass(latencyMs));
  }

  /** Requests and errors of the last minutes. */
  get recent(): RecentCounts {
    return this.#recent?.counts(this.requests, this.errors, performance.now()) ?? { total: 0, failed: 0 };
  }
}
