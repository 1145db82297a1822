/**
 * `npm run bench -- history`: the history of many endpoints over a simulated year: its size, what a minute and an hour cost the
 * gateway, and how long pages wait. Each hour, a part of the endpoints has traffic; of the last 31 days, whose hours are kept,
 * all have, which is the largest that a history can be.
 */
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HistoryFile, MINUTES, type NewHistoryRow } from '../src/gateway/history/history-file.ts';
import { type HistoryRange, historyPart, pointsOf, type SubjectName } from '../src/gateway/history/history-points.ts';
import { Values } from '../src/gateway/history/history-values.ts';
import { createLog } from '../src/lib/log/log.ts';

const ENDPOINTS = Number(process.env.BENCH_ENDPOINTS ?? 5_000);
const DAYS = Number(process.env.BENCH_DAYS ?? 365);
const FULL_DAYS = 31;
const BEGIN = Date.UTC(2026, 0, 1) / 60_000;
/** Rows of one hour of a day before the last ones. */
const SPREAD = 24;

export async function benchHistory(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'history-'));
  try {
    await simulate(join(folder, 'history.db'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function simulate(path: string): Promise<void> {
  const file = HistoryFile.open(path, 395, await createLog('silent', 'json'));
  const subjects = Array.from({ length: ENDPOINTS }, (_, at) => ({
    of: { kind: 'endpoint', key: `https://cam-${at}.site-a.example.com`, device: `dev_${at}` } as const,
    counted: new Values(),
  }));
  const online = subjects.map(({ of }) => ({ of, since: BEGIN * 60, until: null }));
  const own = { kind: 'gateway', key: '', device: '' } as const;
  await file.write([], [{ of: own, since: BEGIN * 60, until: null }, ...online], BEGIN * 60);
  const [minutes, hours]: [number[], number[]] = [[], []];
  const end = BEGIN + DAYS * MINUTES.days;
  for (let at = BEGIN; at < end; at += MINUTES.hours) {
    const isFull = at >= end - FULL_DAYS * MINUTES.days;
    const part = Math.floor(at / MINUTES.hours) % SPREAD;
    const rows: NewHistoryRow[] = [];
    for (const [place, { of, counted }] of subjects.entries()) {
      if (!isFull && place % SPREAD !== part) continue;
      const values = valuesOf(at + place);
      counted.add(values);
      rows.push({ of, at: at + 30, values });
    }
    const begun = performance.now();
    await file.write(rows, [], at * 60);
    const written = performance.now();
    await file.sumUp(at + MINUTES.hours);
    if (isFull) {
      minutes.push(written - begun);
      hours.push(performance.now() - written);
    }
  }
  const size = statSync(path).size;
  const range = (days: number, step: number) => ({ from: end - days * MINUTES.days, to: end, step });
  const queries = { hours: range(1, MINUTES.hours), month: range(30, MINUTES.hours), year: range(365, MINUTES.days) };
  const waits = Object.entries(queries).map(([name, asked]) => {
    const times = subjects.slice(0, 50).map(({ of }) => {
      const begun = performance.now();
      historyPoints(file, of, asked, end * 60);
      return performance.now() - begun;
    });
    return `${name} ${percentile(times, 0.5).toFixed(1)} ms, at most ${Math.max(...times).toFixed(1)} ms`;
  });
  const wrong = subjects.filter(({ of, counted }) => {
    const points = historyPoints(file, of, range(DAYS, MINUTES.days), end * 60);
    const sum = points.reduce((all, { values }) => all.add(values), new Values());
    return sum.numbers.some((value, at) => value !== counted.numbers[at]);
  });
  console.log(
    `\nhistory of ${ENDPOINTS} endpoints after ${DAYS} days, the last ${FULL_DAYS} with traffic in each hour`,
  );
  console.log(
    `  size ${(size / 2 ** 20).toFixed(0)} MiB; sums differ from what was counted for ${wrong.length} endpoints`,
  );
  console.log(
    `  a minute with traffic at all of them: p50 ${percentile(minutes, 0.5).toFixed(0)} ms, in slices of 5 ms`,
  );
  console.log(
    `  the end of an hour: p50 ${percentile(hours, 0.5).toFixed(0)} ms, of a day ${Math.max(...hours).toFixed(0)} ms`,
  );
  console.log(`  a page of one endpoint: ${waits.join('; ')}`);
  await file.close();
}

/** What an endpoint with some traffic counts in an hour. */
function valuesOf(seed: number): Values {
  const values = new Values();
  const requests = 1 + (seed % 500);
  values.requests = requests;
  values.ended[1] = requests;
  values.ended[8 + (seed % 4)] = requests;
  values.setBytes(requests * 431, requests * 12_345);
  if (seed % 50 === 0) values.tallies = { deny: 3 };
  return values;
}

function percentile(values: readonly number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) * share)] ?? 0;
}

function historyPoints(file: HistoryFile, of: SubjectName, range: HistoryRange, now: number) {
  return pointsOf([historyPart(file, of, range)], range, now);
}
