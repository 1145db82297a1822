import type { LiveView } from '../endpoints/live-view.ts';
import { MINUTES } from '../history/history-file.ts';
import { endingsOf, type HistoryStep } from '../history/history-points.ts';
import type { TrafficHistory } from '../history/traffic-history.ts';

const MINUTE_MS = 60_000;
export const SHOWN_DAYS = 90;
/** What clients have got in so many minutes is what they get now. */
const RECENT_MINUTES = 5;
/** After a start, agents connect again. */
const GRACE_MS = 2 * MINUTE_MS;
/** Shares of requests that fail, and how many there must be. */
const BROKEN = { minRequests: 3, share: 9 / 10 };
const FAILING = { minRequests: 10, share: 1 / 10 };
const FAILING_DAY = { minRequests: 50, share: 1 / 10 };
/** An outage of a minute and a half within a day. */
const UP_SHARE = 0.999;
const DOWN_SHARE = 0.5;

/** What a client outside gets, as far as known: `failing`: some requests fail. */
export type EndpointState = 'up' | 'failing' | 'down' | 'unknown';

export interface StatusDay {
  /** When it begins, in milliseconds since 1970. */
  readonly at: number;
  readonly state: EndpointState;
  /** Seconds in which a gateway ran, since the endpoint was first online. */
  readonly known: number;
  readonly online: number;
  /** The share of requests that failed, where that is worth saying; else 0. */
  readonly failed: number;
}

/** By URL. */
export type DaysOf = ReadonlyMap<string, readonly StatusDay[]>;

interface Sources {
  readonly live: Pick<LiveView, 'find' | 'askElsewhere'>;
  readonly history: Pick<TrafficHistory, 'read'> | null;
  /** Whether the gateway has asked as clients do, and something but the policy kept it from an endpoint; left out: it asks none. */
  readonly isUnreached?: (url: string) => boolean;
}

/** The last days of endpoints, the last one is today (UTC). Without a history, they are missing. @param now milliseconds since 1970 */
export async function daysOf(
  urls: readonly string[],
  { history }: Pick<Sources, 'history'>,
  now: number,
): Promise<DaysOf> {
  if (history === null) return new Map();
  const to = (Math.floor(now / MINUTE_MS / MINUTES.days) + 1) * MINUTES.days;
  const range = { from: to - SHOWN_DAYS * MINUTES.days, to, step: MINUTES.days };
  const daysAt = async (url: string): Promise<[string, readonly StatusDay[]]> => {
    const { steps } = await history.read({ kind: 'endpoint', key: url }, range);
    return [url, steps.map(statusDay)];
  };
  return new Map(await Promise.all([...new Set(urls)].map(daysAt)));
}

function statusDay(step: HistoryStep): StatusDay {
  const { at, known, online } = step;
  const { requests, share } = failedOf([step]);
  const isFailing = requests >= FAILING_DAY.minRequests && share >= FAILING_DAY.share;
  const shown = { at: at * MINUTE_MS, known, online, failed: isFailing ? share : 0 };
  if (known === 0) return { ...shown, state: 'unknown' };
  if (online < known * DOWN_SHARE) return { ...shown, state: 'down' };
  return { ...shown, state: isFailing || online < known * UP_SHARE ? 'failing' : 'up' };
}

/** Requests that have ended, and the share of them that got an error of the upstream, or nothing. */
function failedOf(steps: readonly HistoryStep[]): { requests: number; share: number } {
  let [requests, failed] = [0, 0];
  for (const { values } of steps) {
    const endings = endingsOf(values);
    requests += Object.values(endings).reduce((sum, each) => sum + each, 0);
    failed += endings.s5xx + endings.failed;
  }
  return { requests, share: requests === 0 ? 0 : failed / requests };
}

/** What clients get now, in the order of the URLs. @param sources null: the gateway has just started */
export async function statesOf(
  urls: readonly string[],
  days: DaysOf,
  sources: Sources | null,
  { now, upMs }: { now: number; upMs: number },
): Promise<EndpointState[]> {
  if (sources === null) return urls.map(() => 'unknown');
  const { live, history, isUnreached = () => false } = sources;
  const { missing = [] } = (await live.askElsewhere?.()) ?? {};
  const minute = Math.floor(now / MINUTE_MS);
  const range = { from: minute - RECENT_MINUTES, to: minute + 1, step: 1 };
  const stateAt = async (url: string): Promise<EndpointState> => {
    if (live.find.endpointsWithUrl(url).length === 0) {
      const isNew = history !== null && (days.get(url) ?? []).every(({ known }) => known === 0);
      return isNew || upMs < GRACE_MS || missing.length > 0 ? 'unknown' : 'down';
    }
    if (isUnreached(url)) return 'down';
    const steps = (await history?.read({ kind: 'endpoint', key: url }, range))?.steps ?? [];
    const { requests, share } = failedOf(steps);
    const isAt = (limit: typeof BROKEN) => requests >= limit.minRequests && share >= limit.share;
    return isAt(BROKEN) ? 'down' : isAt(FAILING) ? 'failing' : 'up';
  };
  return Promise.all(urls.map(stateAt));
}
