import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { LastDay, LastDays } from '../../gateway/api/dashboard/dashboard-history.ts';
import { ApiProblem } from '../ui/api.ts';
import { api } from './session.ts';

/** The API answers for so many items at once. */
const MOST = 100;
/** Lines have a point for each hour. */
const REFRESH_MS = 300_000;
const HOUR_S = 3_600;

/** Rows that show an item, by its id. */
const shown = new Map<string, number>();
const days = signal<ReadonlyMap<string, LastDay>>(new Map());
let loadTimer = 0;
let refreshTimer = 0;

/** Loads the last day of an item with those of all others that are shown at once. @returns call it when it is no longer shown */
function show(id: string): () => void {
  shown.set(id, (shown.get(id) ?? 0) + 1);
  if (!days.value.has(id) && loadTimer === 0) loadTimer = window.setTimeout(loadNew);
  refreshTimer ||= window.setInterval(() => !document.hidden && void load([...shown.keys()]), REFRESH_MS);
  return () => {
    const rows = (shown.get(id) ?? 0) - 1;
    if (rows > 0) shown.set(id, rows);
    else shown.delete(id);
    if (shown.size > 0) return;
    window.clearInterval(refreshTimer);
    refreshTimer = 0;
  };
}

function loadNew(): void {
  loadTimer = 0;
  void load([...shown.keys()].filter((id) => !days.value.has(id)));
}

async function load(ids: readonly string[]): Promise<void> {
  for (let at = 0; at < ids.length; at += MOST) {
    const query = new URLSearchParams({ ids: ids.slice(at, at + MOST).join(',') });
    try {
      const { items } = await api<LastDays>('GET', `/dashboard/last-days?${query}`);
      const known = new Map([...days.value, ...Object.entries(items)]);
      days.value = new Map([...known].filter(([id]) => shown.has(id)));
    } catch (error) {
      // The list beside them says what is wrong.
      if (!(error instanceof ApiProblem)) throw error;
    }
  }
}

const WIDTH = 72;
const HEIGHT = 26;
/** Of the line, above the band. */
const LINE = 17;
const BAND = { top: 20, height: 6 };

/** Requests of the last day of a device or an endpoint as a line, above when it was online as a band. */
export function LastDayLine({ id }: { id: string }): JSX.Element {
  useEffect(() => show(id), [id]);
  const day = days.value.get(id);
  // Keeps its place, so that nothing moves when it comes.
  if (day === undefined) return <div class="last-day" />;
  const { requests, known } = day;
  const hour = WIDTH / requests.length;
  const most = Math.max(1, ...requests);
  const heights = requests.map((each) => LINE - (each / most) * (LINE - 2));
  const text = summaryOf(day);
  return (
    <svg class="last-day" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={text}>
      <title>{text}</title>
      <path class="line" d={linePath(heights.map((y, at) => ((known[at] ?? 0) > 0 ? [(at + 0.5) * hour, y] : null)))} />
      {Object.entries(bandPaths(day)).map(([state, d]) => d !== '' && <path key={state} class={state} d={d} />)}
    </svg>
  );
}

/** What of each hour was online, offline and is not known: they differ in height and pattern, not in colour alone. */
function bandPaths({ requests, online, known }: LastDay): Record<'online' | 'offline' | 'unknown', string> {
  const { top, height } = BAND;
  const bottom = top + height;
  const hour = WIDTH / requests.length;
  const paths = { online: '', offline: '', unknown: '' };
  for (let at = 0; at < requests.length; at++) {
    const x = at * hour;
    const [up, seen] = [(hour * (online[at] ?? 0)) / HOUR_S, (hour * (known[at] ?? 0)) / HOUR_S];
    if (up > 0) paths.online += `M${x} ${top}h${up.toFixed(2)}v${height}H${x}z`;
    if (seen > up)
      paths.offline += `M${(x + up).toFixed(2)} ${bottom - 2}h${Math.max(1, seen - up).toFixed(2)}v2H${(x + up).toFixed(2)}z`;
    // The present hour is not over.
    if (hour > seen && at < requests.length - 1)
      paths.unknown += `M${(x + seen).toFixed(2)} ${top + height / 2}H${x + hour}`;
  }
  return paths;
}

function summaryOf({ requests, online, known }: LastDay): string {
  const total = requests.reduce((sum, each) => sum + each, 0);
  const seconds = (all: readonly number[]) => all.reduce((sum, each) => sum + each, 0);
  const availability =
    seconds(known) === 0 ? 'nothing known' : `online ${percentOf(seconds(online), seconds(known))} of the known time`;
  return `Last 24 hours: ${total.toLocaleString('en')} ${total === 1 ? 'request' : 'requests'}, ${availability}`;
}

/** The path of a line; null: it has a gap there. A point between two gaps is a dot. */
export function linePath(points: readonly (readonly [x: number, y: number] | null)[]): string {
  let path = '';
  for (const [at, point] of points.entries()) {
    if (point === null) continue;
    const place = point.map((each) => each.toFixed(1)).join(' ');
    const isAlone = !points[at - 1] && !points[at + 1];
    path += points[at - 1] ? `L${place}` : `M${place}${isAlone ? 'h0' : ''}`;
  }
  return path;
}

/** A share in percent. Only what is complete is `100 %`. */
export function percentOf(part: number, whole: number): string {
  if (part >= whole) return '100 %';
  const percent = Math.floor((part / whole) * 10_000) / 100;
  return `${part > 0 ? Math.max(0.01, percent) : 0} %`;
}
