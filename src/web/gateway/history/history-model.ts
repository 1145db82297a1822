import type { HistoryEvent } from '../../../gateway/api/dashboard/dashboard-history.ts';
import type { HistoryAnswer, HistoryPoint } from '../../../management/resources/history.ts';
import { byteSize } from '../../ui/byte-size.ts';
import { percentOf } from '../last-day.tsx';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** How much time a page of a history shows. */
export interface Range {
  /** Its part of the address. */
  readonly name: 'hour' | 'day' | '30-days' | 'year';
  readonly label: string;
  readonly ms: number;
  readonly step: HistoryAnswer['step'];
  /** For how long its steps are kept; days as long as the gateway is told to. */
  readonly keptMs: number;
}

export const RANGES: readonly Range[] = [
  { name: 'hour', label: 'Hour', ms: 60 * MINUTE_MS, step: 'minute', keptMs: 180 * MINUTE_MS },
  { name: 'day', label: 'Day', ms: DAY_MS, step: 'hour', keptMs: 30 * DAY_MS },
  { name: '30-days', label: '30 days', ms: 30 * DAY_MS, step: 'day', keptMs: Number.POSITIVE_INFINITY },
  { name: 'year', label: 'Year', ms: 365 * DAY_MS, step: 'day', keptMs: Number.POSITIVE_INFINITY },
];

export const STEP_MS: Record<HistoryAnswer['step'], number> = { minute: MINUTE_MS, hour: 60 * MINUTE_MS, day: DAY_MS };

/** How requests end, from the bottom of a bar to its top. */
export const SHOWN_ENDINGS = [
  { name: 'successful', label: '2xx' },
  { name: 'redirections', label: '3xx' },
  { name: 'informational', label: '1xx' },
  { name: 'other', label: 'Connections, or not ended' },
  { name: 'client_errors', label: '4xx' },
  { name: 'refused', label: 'Refused' },
  { name: 'server_errors', label: '5xx' },
  { name: 'failed', label: 'Upstream failed' },
] as const;
export type ShownEnding = (typeof SHOWN_ENDINGS)[number]['name'];

export const PERCENTILES = ['p50', 'p95', 'p99'] as const;

/** One step of a history, as it is shown. Times are milliseconds since 1970. */
export interface Point {
  readonly at: number;
  readonly until: number;
  readonly online: number;
  readonly offline: number;
  /** Seconds in which the device ran without a connection: of those offline, and then of those not known. */
  readonly away: number;
  /** How the device was then; null: it has not said. */
  readonly machine: HistoryPoint['away_machine'];
  /** Sessions that have ended, by why. */
  readonly ends: Readonly<Record<string, number>>;
  /** Seconds that have passed and of which nothing is known. */
  readonly unknown: number;
  readonly requests: number;
  readonly endings: Readonly<Record<ShownEnding, number>>;
  readonly latency: HistoryPoint['latency_ms'];
  readonly received: number;
  readonly sent: number;
  readonly reconnects: number;
  readonly refusedBy: Readonly<Record<string, number>>;
  /** What has happened in it, the oldest first. */
  readonly events: readonly HistoryEvent[];
}

/** The gateway has not written the latest seconds yet. */
const NOT_WRITTEN_S = 90;

/** The steps of a history with what has happened in each. @param now in milliseconds since 1970 */
export function shownPoints(
  { step, points, to }: HistoryAnswer,
  events: readonly HistoryEvent[],
  now: number,
): Point[] {
  return points.map((point) => {
    const at = Date.parse(point.at);
    const until = at + STEP_MS[step];
    const { known_seconds: known, online_seconds: online, requests, latency_ms, ...counts } = point;
    const { informational, successful, redirections, client_errors, server_errors, refused, failed } = counts;
    const ended = { informational, successful, redirections, client_errors, server_errors, refused, failed };
    const open = requests - sum(Object.values(ended));
    const passed = Math.min(until, now, Date.parse(to)) - at;
    const unknown = Math.floor(passed / 1000) - known;
    return {
      ...{ at, until, online, requests, latency: latency_ms },
      offline: known - online,
      ...{ away: point.away_seconds, machine: point.away_machine, ends: point.sessions_ended },
      unknown: unknown > (until > now ? NOT_WRITTEN_S : 0) ? unknown : 0,
      // Requests may end in a later step than they began.
      endings: { ...ended, other: Math.max(0, open) },
      ...{ received: counts.received_bytes, sent: counts.sent_bytes, reconnects: counts.reconnects },
      refusedBy: counts.refused_by,
      events: events.filter(({ created_at }) => isWithin(created_at, at, until)).toReversed(),
    };
  });
}

function isWithin(moment: string, from: number, until: number): boolean {
  const at = Date.parse(moment);
  return at >= from && at < until;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, each) => total + each, 0);
}

/** A length of time with its two largest units: `2 h 5 min`. */
export function exactSpan(seconds: number): string {
  const parts = [
    [Math.floor(seconds / 86_400), seconds >= 172_800 ? 'days' : 'day'],
    [Math.floor((seconds % 86_400) / 3_600), 'h'],
    [Math.floor((seconds % 3_600) / 60), 'min'],
    [Math.floor(seconds % 60), 's'],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  if (first === -1) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}

const CLOCK: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
const DATE: Intl.DateTimeFormatOptions = { weekday: 'short', day: 'numeric', month: 'short' };

/** A time of day by the browser's clock. */
export const clockTime = (ms: number): string => new Date(ms).toLocaleTimeString('en-GB', CLOCK);
/** A day by the browser's clock. */
export const dayOf = (ms: number): string => new Date(ms).toLocaleDateString('en-GB', DATE);
/** A day of UTC, as the gateway counts them. */
export const utcDay = (ms: number): string =>
  new Date(ms).toLocaleDateString('en-GB', { ...DATE, year: 'numeric', timeZone: 'UTC' });

/** When a step was, in words. */
export function stepText({ at, until }: Pick<Point, 'at' | 'until'>): string {
  if (until - at >= DAY_MS) return utcDay(at);
  const end = until - at > MINUTE_MS ? `–${clockTime(until)}` : '';
  return `${dayOf(at)}, ${clockTime(at)}${end}`;
}

/** Some time from one moment to another, with the day where that needs saying. */
export function spanText(from: number, to: number): string {
  const isShort = dayOf(from) === dayOf(to);
  return `${dayOf(from)}, ${clockTime(from)} to ${isShort ? '' : `${dayOf(to)}, `}${clockTime(to)}`;
}

/** What was up, in one sentence, and what to say of the rest. */
export interface Availability {
  readonly share: string;
  readonly sentence: string;
  /** The longest outage; null: there was none. */
  readonly outage: string | null;
  /** Of what nothing is known; null: of nothing. */
  readonly unknown: string | null;
}

/** Whether it was up. @param isGateway whether it is the history of a gateway, which is known when it runs */
export function availabilityOf(
  { longest_outage: longest, to }: Pick<HistoryAnswer, 'longest_outage' | 'to'>,
  points: readonly Point[],
  isGateway: boolean,
): Availability {
  const online = sum(points.map((point) => point.online));
  const offline = sum(points.map((point) => point.offline));
  const seconds = sum(points.map((point) => point.unknown));
  const known = online + offline;
  const whole = isGateway ? known + seconds : known;
  const unknown = seconds === 0 ? null : exactSpan(seconds);
  if (known === 0) {
    const sentence = 'Nothing is known of this time: no gateway ran, or it had not come online yet.';
    return { share: '–', sentence, outage: null, unknown };
  }
  const share = percentOf(online, whole);
  const isComplete = online === whole;
  if (isGateway) {
    const sentence = isComplete ? 'A gateway ran all the time.' : `A gateway ran for ${share} of the time.`;
    return { share, sentence, outage: null, unknown };
  }
  const what = unknown === null ? 'time' : 'known time';
  return {
    share,
    sentence: isComplete ? `It was online all the ${what}.` : `It was online for ${share} of the ${what}.`,
    outage: longest && outageText(longest, Date.parse(to)),
    unknown,
  };
}

function outageText({ from, to, seconds }: NonNullable<HistoryAnswer['longest_outage']>, end: number): string {
  const isOver = end - Date.parse(to) > NOT_WRITTEN_S * 1000;
  const span = isOver
    ? spanText(Date.parse(from), Date.parse(to))
    : `since ${dayOf(Date.parse(from))}, ${clockTime(Date.parse(from))}`;
  return `${exactSpan(seconds)} (${span})`;
}

/** What a point says, in words, for people who do not see it. */
export function pointText(point: Point, titleOf: (event: HistoryEvent) => string): string {
  const { online, offline, unknown, requests, endings, latency, received, sent, reconnects } = point;
  const known = online + offline;
  const states = [
    online > 0 ? `online ${offline > 0 ? exactSpan(online) : 'all the time'}` : '',
    offline > 0 ? `offline ${online > 0 ? exactSpan(offline) : 'all the time'}` : '',
    unknown > 0 ? `not known ${known > 0 ? exactSpan(unknown) : 'at all'}` : '',
    point.away > 0 ? `device without connection ${exactSpan(point.away)}${machineText(point.machine)}` : '',
    reconnects > 0 ? `${count(reconnects, 'reconnect')}` : '',
    ...Object.entries(point.ends).map(([end, times]) => `${count(times, 'session')} ${endText(end)}`),
  ];
  const classes = SHOWN_ENDINGS.filter(({ name }) => endings[name] > 0).map(
    ({ name, label }) => `${endings[name].toLocaleString('en')} ${label}`,
  );
  const traffic =
    known === 0
      ? []
      : [
          `${count(requests, 'request')}${classes.length > 0 ? `: ${classes.join(', ')}` : ''}`,
          latency === null
            ? ''
            : `latency ${PERCENTILES.map((name) => `${name} ${milliseconds(latency[name])}`).join(', ')}`,
          `${byteSize(sent)} to clients, ${byteSize(received)} from clients`,
        ];
  const parts = [filled(states).join(', '), ...traffic, ...point.events.map(titleOf)];
  return `${stepText(point)}: ${filled(parts).join('; ')}`;
}

/** What the device said of its machine while it had no connection. */
function machineText(machine: Point['machine']): string {
  if (machine === null) return '';
  const facts = [
    machine.temperature_celsius === null ? '' : `${machine.temperature_celsius.toFixed(0)} °C at most`,
    machine.available_memory_bytes === null ? '' : `${byteSize(machine.available_memory_bytes)} memory at least`,
    machine.available_disk_bytes === null ? '' : `${byteSize(machine.available_disk_bytes)} disk at least`,
    machine.wireless_signal_dbm === null ? '' : `${machine.wireless_signal_dbm} dBm at least`,
  ];
  return filled(facts).length === 0 ? '' : ` (${filled(facts).join(', ')})`;
}

/** Why sessions end, in words that follow their number. */
const ENDS: Readonly<Record<string, string>> = {
  stopped: 'ended by its agent',
  lost: 'lost',
  silent: 'fell silent',
  replaced: 'replaced by a new one',
  gateway: 'ended by the gateway',
  revoked: 'revoked',
  limit: 'ended at a limit',
  faulty: 'ended by a fault',
  refused: 'refused',
};

export function endText(end: string): string {
  return ENDS[end] ?? end;
}

function filled(texts: readonly string[]): string[] {
  return texts.filter((text) => text !== '');
}

function count(number: number, what: string): string {
  return `${number.toLocaleString('en')} ${what}${number === 1 ? '' : 's'}`;
}

/** A latency. */
export function milliseconds(ms: number): string {
  return ms < 1_000 ? `${ms} ms` : `${ms / 1_000} s`;
}
