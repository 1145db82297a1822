import { ENDINGS } from '../endpoints/endpoint-traffic.ts';
import { type HistoryFile, type Level, MINUTES, type Run, type Subject } from './history-file.ts';
import { Values } from './history-values.ts';

/** Some time of a history. */
export interface HistoryPoint {
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

/**
 * The history of an endpoint by its URL, of a device with its endpoints by its id, or of the gateway.
 * @param now in whole seconds since 1970
 */
export function historyPoints(
  file: HistoryFile,
  of: Pick<Subject, 'kind' | 'key'>,
  { from, to, step }: HistoryRange,
  now: number,
): HistoryPoint[] {
  const own = of.kind === 'gateway' ? file.gateways() : file.series(of.kind, of.key);
  const counted = of.kind === 'device' ? [...own, ...file.endpointsOf(of.key)] : own;
  const level: Level = step % MINUTES.days === 0 ? 'days' : step % MINUTES.hours === 0 ? 'hours' : 'minutes';
  const first = from - (from % step);
  const values = new Map<number, Values>();
  for (const row of file.rows(counted, level, first, to)) {
    const at = row.at - (row.at % step);
    values.set(at, (values.get(at) ?? new Values()).add(row.values));
  }
  const known = secondsIn(file, file.gateways(), { from: first, to, step }, now);
  const online = of.kind === 'gateway' ? known : secondsIn(file, own, { from: first, to, step }, now);
  const points: HistoryPoint[] = [];
  for (let at = first; at < to; at += step) {
    const here = values.get(at) ?? new Values();
    const [seconds, ran] = [online.get(at) ?? 0, known.get(at) ?? 0];
    points.push({ at, known: ran, online: Math.min(seconds, ran), values: here });
  }
  return points;
}

/** For how many seconds of each step at least one of the series was online. */
function secondsIn(
  file: HistoryFile,
  series: readonly number[],
  { from, to, step }: HistoryRange,
  now: number,
): Map<number, number> {
  const size = step * 60;
  const seconds = new Map<number, number>();
  const add = (at: number, more: number) => seconds.set(at, Math.min(size, (seconds.get(at) ?? 0) + more));
  // Of days whose runs are no longer kept.
  for (const { at, values } of file.rows(series, 'days', from, to)) {
    if (values.online > 0 && step >= MINUTES.days) add(at - (at % step), values.online);
  }
  for (const { since, until } of joined(file.runs(series, from * 60, to * 60))) {
    const end = Math.min(until ?? now, to * 60);
    for (let begin = Math.max(since, from * 60); begin < end; ) {
      const start = begin - (begin % size);
      const stop = Math.min(end, start + size);
      add(start / 60, stop - begin);
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
