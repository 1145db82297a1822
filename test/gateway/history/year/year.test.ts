import { expect, it, onTestFinished } from 'vitest';
import { MINUTES } from '../../../../src/gateway/history/history-file.ts';
import type { HistoryRange, SubjectName } from '../../../../src/gateway/history/history-points.ts';
import { FULL, rounds } from '../../../faults/rounds.ts';
import { quantile } from '../../../support/finding.ts';
import { measured } from '../../../support/measured.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { SimulatedYear } from './simulated-year.ts';
import type { YearGateway } from './year-gateway.ts';
import { deviceOf, hostOf, type Sums, urlOf } from './year-traffic.ts';

const BEGIN = Date.UTC(2026, 0, 1);
const SIZE = {
  endpoints: Number(process.env.YEAR_ENDPOINTS ?? rounds({ short: 40, full: 5_000 })),
  days: Number(process.env.YEAR_DAYS ?? rounds({ short: 36, full: 365 })),
};
/** What a page may wait for its query. */
const QUERY_MS = 100;
const MOST_BYTES = 1.5 * 2 ** 30;

const begin = BEGIN / 60_000;
const end = begin + SIZE.days * MINUTES.days;
const lastDays = (days: number, step: number): HistoryRange => ({ from: end - days * MINUTES.days, to: end, step });
const byDay: HistoryRange = { from: begin, to: end, step: MINUTES.days };
const endpoint = (number: number): SubjectName => ({ kind: 'endpoint', key: urlOf(number) });

it('keeps what clients have counted in a year at three gateways on PostgreSQL', {
  ...unless(NO_POSTGRES),
  timeout: 3_600_000,
}, async () => {
  const database = await PostgresServer.start();
  onTestFinished(() => database.end());
  // As the store has created it.
  await database.query('CREATE SCHEMA device_agent');
  const year = new SimulatedYear(database, SIZE, BEGIN);
  onTestFinished(async () => void (await Promise.all(year.gateways.map((gateway) => gateway.kill()))));
  const begun = performance.now();
  await year.run((day) => {
    if (day % 30 === 29) process.stdout.write(`${day + 1} days, ${Math.round((performance.now() - begun) / 1000)} s\n`);
  });
  year.noteAll();
  const [first, second, third] = year.gateways as [YearGateway, YearGateway, YearGateway];
  for (const gateway of year.gateways) gateway.blockedMs = Math.max(gateway.blockedMs, await gateway.call('blocked'));

  const wrong: string[] = [];
  await compare(year, first, wrong, 1, 'all there');
  await compare(year, second, wrong, 17, 'at another one');
  const waits = new Map<string, number[]>();
  await query(first, waits, '');
  const sizes = year.gateways.map(({ bytes }) => bytes);
  const [shared] = await database.query<{ bytes: string }>(
    "SELECT sum(pg_total_relation_size(format('device_agent.%I', tablename)))::text AS bytes FROM pg_tables WHERE tablename LIKE 'history%'",
  );
  // Of one that is thrown away, the others have all but its last hour.
  await year.throwAway(third);
  await compare(year, first, wrong, 3, 'one gone');
  await query(first, waits, ', one gateway gone');

  const slow = [...waits].map(([name, times]) => [name, quantile(times, 0.5), Math.max(...times)] as const);
  const mib = (bytes: number) => `${Math.round(bytes / 2 ** 20)} MiB`;
  const lines = [
    JSON.stringify(year.faults),
    `files ${sizes.map(mib).join(', ')}; PostgreSQL ${mib(Number(shared?.bytes))}`,
    `blocked for at most ${year.gateways.map(({ blockedMs }) => Math.round(blockedMs)).join(', ')} ms`,
    ...slow.map(([name, half, most]) => `${name}: p50 ${half.toFixed(1)} ms, at most ${most.toFixed(1)} ms`),
    ...new Set(year.gateways.flatMap(({ warnings }) => warnings)),
  ];
  process.stdout.write(`${lines.join('\n')}\n`);
  expect(wrong.slice(0, 20)).toEqual([]);
  // Where other tests run, it is their time that is measured.
  if (FULL) expect(slow.filter(([, half]) => half > QUERY_MS)).toEqual([]);
  expect(Math.max(...sizes)).toBeLessThan(MOST_BYTES);
  measured({
    fault: `a simulated year of ${SIZE.endpoints} endpoints at three gateways`,
    tried: SIZE.endpoints * SIZE.days,
    lost: wrong.length,
    note: `${lines.slice(0, 2).join('; ')}`,
  });
});

/** Compares each n-th endpoint by the day, and a few by the hour, as devices, and all together. */
async function compare(
  year: SimulatedYear,
  gateway: YearGateway,
  wrong: string[],
  every: number,
  state: string,
): Promise<void> {
  const note = (number: number, day: number, sums: Sums, how = '') =>
    wrong.push(...differences(year, number, day, sums).map((text) => `${state} ${how}: ${text}`));
  for (let number = 0; number < SIZE.endpoints; number += every) {
    const { steps } = await gateway.call('read', endpoint(number), byDay);
    for (const [day, sums] of steps.entries()) note(number, day, sums);
    if (number % 50 > 0) continue;
    const device = await gateway.call('read', { kind: 'device', key: deviceOf(number) }, byDay);
    for (const [day, sums] of device.steps.entries()) note(number, day, sums);
    const hours = await gateway.call('read', endpoint(number), lastDays(30, MINUTES.hours));
    for (let day = SIZE.days - 30; day < SIZE.days; day++) {
      const at = (day - SIZE.days + 30) * 24;
      const sums = hours.steps
        .slice(at, at + 24)
        .reduce((all, each) => all.map((value, of) => value + (each[of] ?? 0)) as unknown as Sums);
      note(number, day, sums, 'by the hour');
    }
  }
}

function differences(year: SimulatedYear, number: number, day: number, sums: Sums): string[] {
  const [requests, failed, refused, received, known, online] = sums;
  const sent = year.day(number, day);
  const found = { requests, failed, refused, received, online, known };
  const isCounted = sent.requests - sent.unsure <= requests && requests <= sent.requests;
  const isWhole = sent.unsure > 0 || (failed === sent.failed && refused === sent.refused && received === sent.received);
  const isOnline = Math.abs(online - sent.online) <= sent.slack;
  if (isCounted && isWhole && isOnline && known >= online) return [];
  return [`${urlOf(number)} on day ${day}: ${JSON.stringify({ found, sent })}`];
}

/** How long pages wait. */
async function query(gateway: YearGateway, waits: Map<string, number[]>, state: string): Promise<void> {
  const asked: Record<string, (number: number) => readonly [SubjectName, HistoryRange]> = {
    'an endpoint, a day': (number) => [endpoint(number), lastDays(1, MINUTES.hours)],
    'an endpoint, 30 days': (number) => [endpoint(number), lastDays(30, MINUTES.hours)],
    'an endpoint, a year': (number) => [endpoint(number), lastDays(365, MINUTES.days)],
    'an endpoint by its hostname, a year': (number) => [
      { kind: 'endpoint', key: hostOf(number) },
      lastDays(365, MINUTES.days),
    ],
    'a device, a year': (number) => [{ kind: 'device', key: deviceOf(number) }, lastDays(365, MINUTES.days)],
    'the gateway, 30 days': () => [{ kind: 'gateway', key: '' }, lastDays(30, MINUTES.hours)],
    'the gateway, a year': () => [{ kind: 'gateway', key: '' }, lastDays(365, MINUTES.days)],
  };
  const note = (name: string, ms: number) => waits.set(name + state, [...(waits.get(name + state) ?? []), ms]);
  for (let number = 0; number < SIZE.endpoints; number += Math.ceil(SIZE.endpoints / 40)) {
    for (const [name, question] of Object.entries(asked))
      note(name, (await gateway.call('read', ...question(number))).ms);
    const listed = Array.from({ length: 50 }, (_, at) => (number + at) % SIZE.endpoints);
    for (const [name, of] of [
      ['a list of 50 endpoints', endpoint],
      ['a list of 50 devices', (each: number): SubjectName => ({ kind: 'device', key: deviceOf(each) })],
    ] as const)
      note(name, (await gateway.call('list', listed.map(of), lastDays(1, MINUTES.hours))).ms);
  }
}
