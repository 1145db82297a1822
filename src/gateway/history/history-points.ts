import { ENDINGS } from '../endpoints/traffic-counts.ts';
import { type HistoryFile, type HistorySubject, type Level, MINUTES, type Run } from './history-file.ts';
import { Values } from './history-values.ts';

/** Some time of a history. */
export interface HistoryStep {
  /** When it begins, in whole minutes since 1970. */
  readonly at: number;
  /** Seconds of it in which a gateway ran; of the others, nothing is known. */
  readonly known: number;
  readonly online: number;
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
}

/** What the file has of an endpoint by its URL, of a device with its endpoints by its id, or of the gateway. */
export function historyPart(file: HistoryFile, of: SubjectName, { from, to, step }: HistoryRange): HistoryPart {
  const gateways = file.gateways();
  const own = of.kind === 'gateway' ? gateways : file.series(of.kind, of.key);
  const counted = of.kind === 'device' ? [...own, ...file.endpointsOf(of.key)] : own;
  const runs = (series: readonly number[]) => [
    ...file.runs(series, from * 60, to * 60),
    ...oldRuns(file, series, from, to),
  ];
  return { rows: file.rows(counted, levelOf(step), from, to), runs: runs(own), known: runs(gateways) };
}

/** Of days whose runs are no longer kept, one from their beginning, which is as long as all of them. */
function oldRuns(file: HistoryFile, series: readonly number[], from: number, to: number): Run[] {
  return file
    .rows(series, 'days', from, to)
    .filter(({ values }) => values.online > 0)
    .map(({ at, values }) => ({ since: at * 60, until: at * 60 + values.online }));
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
  const known = secondsIn(
    parts.flatMap((part) => part.known),
    range,
    now,
  );
  const online = secondsIn(
    parts.flatMap((part) => part.runs),
    range,
    now,
  );
  const points: HistoryStep[] = [];
  for (let at = from; at < to; at += step) {
    const here = values.get(at) ?? new Values();
    const ran = known.get(at) ?? 0;
    points.push({ at, known: ran, online: Math.min(ran, online.get(at) ?? 0), values: here });
  }
  return points;
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
