import type { Stepwise } from '../../lib/stepwise.ts';
import { ENDINGS } from '../endpoints/traffic-counts.ts';
import {
  type Away,
  type HistoryFile,
  type HistorySubject,
  type Level,
  type MachineReadings,
  MINUTES,
  type Run,
  SLOT_MINUTES,
} from './history-file.ts';
import { Values } from './history-values.ts';

/** Some time of a history. */
export interface HistoryStep {
  /** When it begins, in whole minutes since 1970. */
  readonly at: number;
  /** Seconds of it in which a gateway ran, since it was first online; of the others, nothing is known. */
  readonly known: number;
  readonly online: number;
  /** Seconds in which the device ran without a session, as it has said afterwards; of them, a gateway need not have run. */
  readonly away: number;
  /** What the device said of its machine in that time: the most worrying of it; null: nothing. */
  readonly machine: MachineReadings | null;
  readonly values: Values;
}

/** From one minute up to another one, since 1970, in steps of this many minutes. */
export interface HistoryRange {
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

/** What has a history, as those who read it name it; a gateway: all of them. */
export type SubjectName = Pick<HistorySubject, 'kind' | 'key'>;

/** What one gateway has of a history, unsummed. */
export interface HistoryPart {
  readonly rows: readonly { readonly at: number; readonly values: Values }[];
  /** When what is asked for was online. */
  readonly runs: readonly Run[];
  /** When the gateway ran. */
  readonly known: readonly Run[];
  /** The same of days whose runs are no longer kept: one for each day, from its beginning. */
  readonly old?: { readonly runs: readonly Run[]; readonly known: readonly Run[] } | undefined;
  /** What its devices have said of their times without a session. */
  readonly away: readonly Away[];
  /** When it was first online, in whole seconds since 1970, whatever is asked for; null: never. */
  readonly seen: number | null;
}

/** Some time offline while a gateway ran. Times are whole seconds since 1970. */
export interface Outage {
  readonly from: number;
  readonly to: number;
  /** Without the time between in which no gateway ran. */
  readonly seconds: number;
}

/** What the file has of an endpoint by its URL, of a device with its endpoints by its id, or of the gateway. */
export function historyPart(file: HistoryFile, of: SubjectName, { from, to, step }: HistoryRange): HistoryPart {
  const gateways = file.gateways();
  const own = of.kind === 'gateway' ? gateways : file.series(of.kind, of.key);
  const counted = of.kind === 'device' ? [...own, ...file.endpointsOf(of.key)] : own;
  const runs = (series: readonly number[]) => file.runs(series, from * 60, to * 60);
  const old = { runs: oldRuns(file, own, from, to), known: oldRuns(file, gateways, from, to) };
  const rows = file.rows(counted, levelOf(step), from, to);
  const devices = of.kind === 'endpoint' ? file.devicesOf(of.key).flatMap((id) => file.series('device', id)) : own;
  const away = of.kind === 'gateway' ? [] : file.away(devices, from, to);
  return { rows, runs: runs(own), known: runs(gateways), old, away, seen: file.firstSeen(own) };
}

/**
 * What the file has of many in the same order, in steps: of what was counted, the requests alone.
 * @param range in steps of hours, within the last 30 days
 */
export function* briefParts(
  file: HistoryFile,
  of: readonly SubjectName[],
  { from, to }: HistoryRange,
): Stepwise<HistoryPart[]> {
  const known = file.runs(file.gateways(), from * 60, to * 60);
  const parts: HistoryPart[] = [];
  for (const { kind, key } of of) {
    const own = file.series(kind, key);
    const rows = file.requestsByHour(kind === 'device' ? file.endpointsOf(key) : own, from, to);
    parts.push({ rows, runs: file.runs(own, from * 60, to * 60), known, away: [], seen: file.firstSeen(own) });
    yield;
  }
  return parts;
}

/** Of days whose runs are no longer kept, one from their beginning, which is as long as all of them. */
function oldRuns(file: HistoryFile, series: readonly number[], from: number, to: number): Run[] {
  return file.onlineByDay(series, from, to).map(({ at, seconds }) => ({ since: at * 60, until: at * 60 + seconds }));
}

/** The coarsest rows that suffice for steps of so many minutes. */
export function levelOf(step: number): Level {
  return step % MINUTES.days === 0 ? 'days' : step % MINUTES.hours === 0 ? 'hours' : 'minutes';
}

/**
 * Sums up what gateways have.
 * @param range begins at a whole step @param now in whole seconds since 1970
 */
export function pointsOf(parts: readonly HistoryPart[], range: HistoryRange, now: number): HistoryStep[] {
  const { from, to, step } = range;
  const values = new Map<number, Values>();
  for (const { at, values: more } of parts.flatMap(({ rows }) => rows)) {
    const begin = at - (at % step);
    values.set(begin, (values.get(begin) ?? new Values()).add(more));
  }
  const known = secondsIn(runsOf(parts, 'known', range, now), range, now);
  const online = secondsIn(runsOf(parts, 'runs', range, now), range, now);
  // What has come yesterday was not offline for a month.
  const seen = firstSeen(parts);
  const away = awayIn(parts, range, online, seen);
  const points: HistoryStep[] = [];
  for (let at = from; at < to; at += step) {
    const here = values.get(at) ?? new Values();
    const ran = Math.min(known.get(at) ?? 0, Math.max(0, (at + step) * 60 - seen));
    const up = Math.min(ran, online.get(at) ?? 0);
    const { seconds = 0, machine = null } = away.get(at) ?? {};
    // What the gateway has counted itself stands.
    const most = Math.min((at + step) * 60, now) - at * 60 - up;
    points.push({ at, known: ran, online: up, away: Math.max(0, Math.min(seconds, most)), machine, values: here });
  }
  return points;
}

/** All runs. Of days whose runs a gateway no longer keeps, those count that others have, unless it was online for longer. */
function runsOf(
  parts: readonly HistoryPart[],
  what: 'runs' | 'known',
  { from, to }: Pick<HistoryRange, 'from' | 'to'>,
  now: number,
): Run[] {
  const days = { from: from - (from % MINUTES.days), to, step: MINUTES.days };
  return parts.flatMap((part) => {
    const { [what]: old = [] } = part.old ?? {};
    if (old.length === 0) return part[what];
    const others = parts.filter((each) => each !== part).flatMap((each) => each[what]);
    const seconds = secondsIn(others, days, now);
    const isLonger = ({ since, until }: Run) => (until ?? now) - since > (seconds.get(since / 60) ?? 0);
    return [...part[what], ...old.filter(isLonger)];
  });
}

/** What devices say of each step. Of ten minutes, the seconds are among those in which it was not online. */
function awayIn(
  parts: readonly HistoryPart[],
  { from, to, step }: HistoryRange,
  online: ReadonlyMap<number, number>,
  seen: number,
): Map<number, { seconds: number; machine: MachineReadings }> {
  const slots = new Map<number, Away>();
  for (const slot of parts.flatMap((part) => part.away)) {
    // It may have told two gateways.
    if ((slots.get(slot.at)?.seconds ?? -1) < slot.seconds) slots.set(slot.at, slot);
  }
  const steps = new Map<number, { seconds: number; machine: MachineReadings }>();
  for (const { at, seconds, machine } of slots.values()) {
    if ((at + SLOT_MINUTES) * 60 <= seen) continue;
    const isFine = step < SLOT_MINUTES;
    const begins = isFine ? Array.from({ length: SLOT_MINUTES / step }, (_, n) => at + n * step) : [at - (at % step)];
    const free = (begin: number) => (isFine ? step * 60 - (online.get(begin) ?? 0) : 1);
    const all = begins.reduce((sum, begin) => sum + free(begin), 0);
    for (const begin of begins) {
      if (begin < from || begin >= to || all === 0) continue;
      const before = steps.get(begin);
      const share = Math.round((seconds * free(begin)) / all);
      steps.set(begin, { seconds: (before?.seconds ?? 0) + share, machine: worse(before?.machine, machine) });
    }
  }
  return steps;
}

function worse(one: MachineReadings | undefined, other: MachineReadings): MachineReadings {
  const known = (place: 0 | 1 | 2 | 3) => [one?.[place], other[place]].filter((value) => value != null);
  const least = (place: 1 | 2 | 3) => (known(place).length === 0 ? null : Math.min(...known(place)));
  return [known(0).length === 0 ? null : Math.max(...known(0)), least(1), least(2), least(3)];
}

/** In seconds since 1970; infinity: never. */
function firstSeen(parts: readonly HistoryPart[]): number {
  return Math.min(...parts.map(({ seen }) => seen ?? Infinity));
}

/**
 * The longest outage; null: there was none. Of days whose runs are no longer kept, all outages count as one, at the end of the day.
 * @param now in whole seconds since 1970
 */
export function longestOutage(
  parts: readonly HistoryPart[],
  { from, to }: Pick<HistoryRange, 'from' | 'to'>,
  now: number,
): Outage | null {
  const end = Math.min(to * 60, now);
  const known = joined(runsOf(parts, 'known', { from, to }, now));
  const online = joined(runsOf(parts, 'runs', { from, to }, now));
  let longest: Outage | null = null;
  let offline = Math.max(from * 60, firstSeen(parts));
  for (const { since, until } of [...online, { since: end, until: end }]) {
    const outage = outageBetween(known, offline, Math.min(since, end));
    if (outage !== null && outage.seconds > (longest?.seconds ?? 0)) longest = outage;
    offline = Math.max(offline, until ?? end);
  }
  return longest;
}

/** What is known of some time offline; null: nothing. */
function outageBetween(known: readonly Run[], from: number, to: number): Outage | null {
  const seen = known
    .map(({ since, until }) => ({ since: Math.max(since, from), until: Math.min(until ?? to, to) }))
    .filter(({ since, until }) => since < until);
  const [first, last] = [seen[0], seen.at(-1)];
  if (first === undefined || last === undefined) return null;
  const seconds = seen.reduce((sum, { since, until }) => sum + until - since, 0);
  return { from: first.since, to: last.until, seconds };
}

/** For how many seconds of each step there was at least one run. */
function secondsIn(runs: readonly Run[], { from, to, step }: HistoryRange, now: number): Map<number, number> {
  const size = step * 60;
  const seconds = new Map<number, number>();
  for (const { since, until } of joined(runs)) {
    const end = Math.min(until ?? now, to * 60);
    for (let begin = Math.max(since, from * 60); begin < end; ) {
      const start = begin - (begin % size);
      const stop = Math.min(end, start + size);
      seconds.set(start / 60, (seconds.get(start / 60) ?? 0) + stop - begin);
      begin = stop;
    }
  }
  return seconds;
}

/** Runs that overlap become one. */
function joined(runs: readonly Run[]): Run[] {
  const result: { since: number; until: number | null }[] = [];
  for (const { since, until } of [...runs].sort((a, b) => a.since - b.since)) {
    const last = result.at(-1);
    if (last === undefined || (last.until !== null && last.until < since)) result.push({ since, until });
    else if (last.until !== null) last.until = until === null ? null : Math.max(last.until, until);
  }
  return result;
}

/** Numbers of requests by how they have ended. */
export function endingsOf({ ended }: Values): Record<(typeof ENDINGS)[number], number> {
  return Object.fromEntries(ENDINGS.map((ending, at) => [ending, ended[at] ?? 0])) as never;
}
