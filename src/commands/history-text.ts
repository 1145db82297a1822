import { printable } from '../lib/terminal-text.ts';
import { jsonText, print, widthOf } from './output.ts';

export interface HistoryChoice {
  since?: string;
  until?: string;
  step?: 'minute' | 'hour' | 'day';
  json?: boolean;
}

/** Of the answer of an API, what is drawn. */
export interface ShownHistory {
  readonly from: string;
  readonly to: string;
  readonly step: string;
  readonly points: readonly ShownPoint[];
}

/** Only a gateway knows how requests end, and a device has none of its own. */
interface ShownPoint {
  readonly at: string;
  readonly known_seconds: number;
  readonly online_seconds: number;
  readonly away_seconds?: number;
  readonly sessions_ended?: Readonly<Record<string, number>>;
  readonly requests?: number;
  readonly server_errors?: number;
  readonly refused?: number;
  readonly failed?: number;
  readonly received_bytes?: number;
  readonly sent_bytes?: number;
  readonly latency_ms?: { readonly p95: number } | null;
}

const LEVELS = '▁▂▃▄▅▆▇█';
const NOT_KNOWN = '·';
const AWAY = '▁';
/** Where nobody says how wide the terminal is. */
const DEFAULT_WIDTH = 80;
const MAX_WIDTH = 120;
const TITLE_WIDTH = 10;
/** Of what is behind a line. */
const SCALE_WIDTH = 18;

/** Prints a history. @param name what it is of */
export function showHistory(name: string, history: ShownHistory, { json }: HistoryChoice): void {
  print(json ? jsonText(history) : historyText(name, history, Math.min(widthOf(process.stdout), DEFAULT_WIDTH)));
}

/**
 * Draws a history for a terminal: what it sums up to, and a line of characters for each figure.
 *
 * @param name what it is of @param columns of the terminal
 */
export function historyText(name: string, { from, to, step, points }: ShownHistory, columns: number): string {
  const sum = (of: (point: ShownPoint) => number) => points.reduce((all, point) => all + of(point), 0);
  const has = (member: keyof ShownPoint) => points.some((point) => point[member] !== undefined);
  const [known, online] = [sum((point) => point.known_seconds), sum((point) => point.online_seconds)];
  const groups = groupsOf(points, Math.max(10, Math.min(columns, MAX_WIDTH) - TITLE_WIDTH - SCALE_WIDTH));
  const slowest = Math.max(0, ...points.map(({ latency_ms }) => latency_ms?.p95 ?? 0));
  const received = bytes(sum(({ received_bytes = 0 }) => received_bytes));
  const sent = bytes(sum(({ sent_bytes = 0 }) => sent_bytes));
  const away = sum(({ away_seconds = 0 }) => away_seconds);
  const ends = new Map<string, number>();
  for (const { sessions_ended = {} } of points)
    for (const [end, times] of Object.entries(sessions_ended)) ends.set(end, (ends.get(end) ?? 0) + times);
  const facts = [
    known === 0 ? 'nothing is known of this time' : `online ${percent(online / known)} of the time that is known`,
    ...(has('requests') ? [`${sum(requestsOf)} requests`] : []),
    ...(has('failed') ? [`${sum(troubleOf)} failed`, `${sum(({ refused = 0 }) => refused)} refused`] : []),
    ...(has('requests') ? [`${received} received`, `${sent} sent`] : []),
    ...(away > 0 ? [`device without connection for ${Math.ceil(away / 60)} min`] : []),
    ...(ends.size > 0 ? [`sessions ended: ${[...ends].map(([end, times]) => `${times} ${end}`).join(', ')}`] : []),
  ];
  const most = (value: number) => `at most ${value}`;
  const rows = [
    ...(has('requests') ? [bars('requests', groups, requestsOf, most)] : []),
    ...(has('failed') ? [bars('failed', groups, troubleOf, most)] : []),
    ...(has('latency_ms')
      ? [
          bars(
            'p95',
            groups,
            (point) => point.latency_ms?.p95 ?? 0,
            () => `${most(slowest)} ms`,
          ),
        ]
      : []),
    `${'online'.padEnd(TITLE_WIDTH)}${groups.map(presence).join('')}`,
  ];
  const legend = `${' '.repeat(TITLE_WIDTH)}█ online, ▄ partly, ${away > 0 ? `${AWAY} no connection, ` : ''}blank offline, ${NOT_KNOWN} not known`;
  const title = `${printable(name)}: ${from} to ${to}, by the ${step}`;
  return [title, wrapped(facts, columns), '', ...rows, legend].join('\n');
}

/** As many groups of points that follow each other as there is room for, summed up. */
function groupsOf(points: readonly ShownPoint[], width: number): ShownPoint[] {
  const size = Math.max(1, Math.ceil(points.length / width));
  const groups: ShownPoint[] = [];
  for (let at = 0; at < points.length; at += size) groups.push(points.slice(at, at + size).reduce(added));
  const repeat = Math.max(1, Math.floor(width / groups.length));
  return repeat === 1 ? groups : groups.flatMap((group) => Array.from({ length: Math.min(repeat, 3) }, () => group));
}

function added(one: ShownPoint, other: ShownPoint): ShownPoint {
  return {
    at: one.at,
    known_seconds: one.known_seconds + other.known_seconds,
    online_seconds: one.online_seconds + other.online_seconds,
    away_seconds: (one.away_seconds ?? 0) + (other.away_seconds ?? 0),
    requests: requestsOf(one) + requestsOf(other),
    failed: troubleOf(one) + troubleOf(other),
    latency_ms:
      (one.latency_ms?.p95 ?? 0) > (other.latency_ms?.p95 ?? 0) ? (one.latency_ms ?? null) : (other.latency_ms ?? null),
  };
}

function requestsOf({ requests = 0 }: ShownPoint): number {
  return requests;
}

function troubleOf({ failed = 0, server_errors = 0 }: ShownPoint): number {
  return failed + server_errors;
}

function bars(
  title: string,
  groups: readonly ShownPoint[],
  of: (point: ShownPoint) => number,
  scale: (most: number) => string,
): string {
  const most = Math.max(0, ...groups.map(of));
  const line = groups.map((group) => {
    if (group.known_seconds === 0) return NOT_KNOWN;
    const value = of(group);
    return value === 0 ? ' ' : (LEVELS[Math.min(LEVELS.length - 1, Math.floor((value / most) * LEVELS.length))] ?? ' ');
  });
  return `${title.padEnd(TITLE_WIDTH)}${line.join('')}${most === 0 ? '' : `  ${scale(most)}`}`;
}

function presence({ known_seconds: known, online_seconds: online, away_seconds: away = 0 }: ShownPoint): string {
  // Also while no gateway ran.
  if (online === 0 && away > 0) return AWAY;
  if (known === 0) return NOT_KNOWN;
  if (online === 0) return ' ';
  // Clocks of a second: a point that is online all the time may lack one.
  return online >= known * 0.99 ? '█' : '▄';
}

/** 100 % only when nothing was missed. */
function percent(share: number): string {
  const text = (Math.floor(share * 10_000) / 100).toFixed(2);
  return `${share >= 1 ? '100' : text} %`;
}

function bytes(count: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let [value, unit] = [count, 0];
  while (value >= 1_000 && unit < units.length - 1) [value, unit] = [value / 1_000, unit + 1];
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

/** Facts on as many lines as they need. */
function wrapped(facts: readonly string[], columns: number): string {
  const lines: string[] = [];
  for (const fact of facts) {
    const last = lines.at(-1);
    if (last === undefined || last.length + fact.length + 2 > columns) lines.push(fact);
    else lines[lines.length - 1] = `${last}, ${fact}`;
  }
  return lines.join(',\n');
}
