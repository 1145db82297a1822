import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { HistoryFile, MINUTES, type NewRun } from '../../../src/gateway/history/history-file.ts';
import {
  briefParts,
  type HistoryRange,
  historyPart,
  longestOutage,
  pointsOf,
  type SubjectName,
} from '../../../src/gateway/history/history-points.ts';
import { Values } from '../../../src/gateway/history/history-values.ts';
import { runAtOnce } from '../../../src/lib/stepwise.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const BEGIN = Date.UTC(2026, 0, 1) / 60_000;
const DAYS = 45;
const END = BEGIN + DAYS * MINUTES.days;
const CAM = { kind: 'endpoint', key: 'https://cam.example.com', device: 'dev_1' } as const;
const GATEWAY = { kind: 'gateway', key: '', device: '' } as const;

function opened(folder = temporaryFolder()) {
  const { log, lines } = recordingLog();
  const file = HistoryFile.open(join(folder, 'history.db'), 395, log);
  onTestFinished(() => file.close());
  return { file, lines, folder };
}

function historyPoints(file: HistoryFile, of: SubjectName, range: HistoryRange, now: number) {
  return pointsOf([historyPart(file, of, range)], range, now);
}

function counted(requests: number, ms: number): Values {
  const values = new Values();
  values.requests = requests;
  values.ended[1] = requests;
  values.ended[ms < 5 ? 7 : 12] = requests;
  values.tallies = requests % 3 === 0 ? { deny: 1 } : null;
  return values;
}

it('has the same sums by the minute, hour and day, also of days whose hours are gone', async () => {
  const { file } = opened();
  // Ten minutes offline each day, over midnight on some days; the gateway itself is away for an hour on the 40th.
  const runs: NewRun[] = [];
  for (let day = 0; day < DAYS; day++) {
    const since = (BEGIN + day * MINUTES.days + 10) * 60;
    runs.push({ of: CAM, since, until: since + (MINUTES.days - 10) * 60 });
  }
  const away = (BEGIN + 40 * MINUTES.days + 600) * 60;
  const ownRuns: NewRun[] = [
    { of: GATEWAY, since: BEGIN * 60, until: away },
    { of: GATEWAY, since: away + 3_600, until: null },
  ];
  await file.write([], [...runs, ...ownRuns], BEGIN * 60);
  let requests = 0;
  let denied = 0;
  for (let hour = BEGIN; hour < END; hour += MINUTES.hours) {
    const rows = [0, 15, 30, 45].map((minute) => {
      const at = hour + minute;
      return { of: CAM, at, values: counted(at % 7, at % 9) };
    });
    requests += rows.reduce((sum, { values }) => sum + values.requests, 0);
    denied += rows.reduce((sum, { values }) => sum + (values.refusals.deny ?? 0), 0);
    await file.write(rows, [], hour * 60);
    await file.sumUp(hour + MINUTES.hours);
  }
  const read = (days: number, step: number) =>
    historyPoints(file, CAM, { from: END - days * MINUTES.days, to: END, step }, END * 60);
  const days = read(DAYS, MINUTES.days);
  expect(days.length).toBe(DAYS);
  expect(days.reduce((sum, { values }) => sum + values.requests, 0)).toBe(requests);
  expect(days.reduce((sum, { values }) => sum + (values.refusals.deny ?? 0), 0)).toBe(denied);
  expect(days.map(({ known }) => known)).toEqual(days.map((_, day) => (day === 40 ? 82_800 : 86_400)));
  expect(days.slice(1, 40).every(({ online }) => online === 85_800)).toBe(true);
  // By the hour for the last 30 days, which agree with their days.
  const hours = read(30, MINUTES.hours);
  const byDay = Array.from({ length: 30 }, (_, day) =>
    hours.slice(day * 24, day * 24 + 24).reduce((sum, { values }) => sum + values.requests, 0),
  );
  expect(byDay).toEqual(days.slice(-30).map(({ values }) => values.requests));
  expect(hours.find(({ at }) => at * 60 === away)).toMatchObject({ known: 0, online: 0 });
  const older = historyPoints(file, CAM, { from: BEGIN, to: BEGIN + MINUTES.days, step: MINUTES.hours }, END * 60);
  expect(older.every(({ values }) => values.requests === 0)).toBe(true);
  const minutes = historyPoints(file, CAM, { from: END - 60, to: END, step: 1 }, END * 60);
  expect(minutes.reduce((sum, { values }) => sum + values.requests, 0)).toBe(hours.at(-1)?.values.requests);
});

it('ends what a killed gateway has left open when it last wrote', async () => {
  const { file, folder } = opened();
  const since = BEGIN * 60;
  await file.write(
    [],
    [CAM, GATEWAY].map((of) => ({ of, since, until: null })),
    since + 600,
  );
  const again = HistoryFile.open(join(folder, 'history.db'), 395, recordingLog().log);
  onTestFinished(() => again.close());
  await again.endRuns();
  const [point] = historyPoints(again, CAM, { from: BEGIN, to: BEGIN + 60, step: 60 }, since + 3_600);
  expect(point).toMatchObject({ known: 600, online: 600 });
});

it('keeps what arrives while the clock goes back', async () => {
  const { file } = opened();
  await file.sumUp(BEGIN + 120);
  await file.write([{ of: CAM, at: BEGIN, values: counted(5, 1) }], [], BEGIN * 60);
  await file.sumUp(BEGIN + 180);
  const points = historyPoints(file, CAM, { from: BEGIN, to: BEGIN + 240, step: 60 }, BEGIN * 60);
  expect(points.reduce((sum, { values }) => sum + values.requests, 0)).toBe(5);
});

it('begins anew when its file is damaged, which stays', () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'history.db'), Buffer.alloc(8_192, 'x'));
  const { lines } = opened(folder);
  expect(lines.map(({ msg }) => msg)).toEqual(['history cannot be read: file set aside, a new one begins']);
  expect(readdirSync(folder)).toContain('history.db.aside');
});

it('estimates latency within the class that has it', () => {
  const values = new Values();
  values.ended[7] = 90;
  values.ended[12] = 10;
  expect([0.5, 0.95, 0.99].map((share) => values.latency(share))).toEqual([3, 150, 190]);
  expect(new Values().latency(0.5)).toBeNull();
});

it('knows the longest outage, and counts neither what is not known nor the time before something was first online', async () => {
  const { file } = opened();
  const at = (hours: number) => (BEGIN + hours * MINUTES.hours) * 60;
  const run = (of: NewRun['of'], since: number, until: number | null) => ({
    of,
    since: at(since),
    until: until === null ? null : at(until),
  });
  const device = { kind: 'device', key: 'dev_1', device: 'dev_1' } as const;
  await file.write(
    [3, 15, 15.5].map((hours) => ({ of: CAM, at: at(hours) / 60, values: counted(5, 3) })),
    [
      ...[run(GATEWAY, 0, 10), run(GATEWAY, 13, null)],
      ...[CAM, device].flatMap((of) => [run(of, 2, 9), run(of, 14, 20), run(of, 20.5, null)]),
    ],
    at(24),
  );
  await file.sumUp(at(16) / 60);
  const range = { from: at(0) / 60, to: at(24) / 60, step: MINUTES.hours };
  for (const of of [CAM, device]) {
    const part = historyPart(file, of, range);
    expect(longestOutage([part], range, at(24))).toEqual({ from: at(9), to: at(14), seconds: 7_200 });
    const steps = pointsOf([part], range, at(24));
    const hours = (of: 'known' | 'online') => steps.map((step) => step[of] / 3_600);
    expect(hours('known').join(' ')).toBe('0 0 1 1 1 1 1 1 1 1 0 0 0 1 1 1 1 1 1 1 1 1 1 1');
    expect(hours('online').join(' ')).toBe('0 0 1 1 1 1 1 1 1 0 0 0 0 0 1 1 1 1 1 1 0.5 1 1 1');
    // What lists show of many is the same.
    const brief = runAtOnce(briefParts(file, [of], range)).map((each) => pointsOf([each], range, at(24)));
    const shown = (all: typeof steps) => all.map(({ known, online, values }) => [known, online, values.requests]);
    expect(brief.map(shown)).toEqual([shown(steps)]);
  }
  expect(longestOutage([historyPart(file, GATEWAY, range)], range, at(24))).toBe(null);
});
