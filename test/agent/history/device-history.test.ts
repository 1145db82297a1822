import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { deviceHistory, tunnelHistory } from '../../../src/agent/api/history-answers.ts';
import { type CountedTunnel, DeviceHistory } from '../../../src/agent/history/device-history.ts';
import type { TimesAway } from '../../../src/agent-protocol/messages.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const BEGIN = Date.UTC(2026, 0, 1);
const CREATED = { id: 'tn_1', created_at: new Date(BEGIN).toISOString() };

function device(folder = temporaryFolder(), begin = BEGIN) {
  const clock = new SteeredClock();
  const state = { isOnline: true, tunnel: 'online' as CountedTunnel['state'], requests: 0 };
  const reports: TimesAway[] = [];
  const gateway = { takes: true, refused: 0 };
  const from = clock.now();
  const history = new DeviceHistory(
    { clock, log: silentLog },
    {
      ...{ file: join(folder, 'history.jsonl'), dataDir: folder, isOnline: () => state.isOnline },
      reportAway: async (times) => {
        if (!gateway.takes) {
          gateway.refused += 1;
          throw new Error('refused');
        }
        reports.push(times);
        return true;
      },
      time: () => begin + clock.now() - from,
      tunnels: () => {
        const { tunnel, requests } = state;
        const traffic = { connections: 1, requests, bytesIn: 10 * requests, bytesOut: 100 * requests, lastAt: null };
        return [{ id: CREATED.id, state: tunnel, traffic }];
      },
    },
  );
  const change = (isOnline: boolean) => {
    state.isOnline = isOnline;
    history.sessionChanged(isOnline);
  };
  return { history, clock, state, folder, reports, gateway, change };
}

const sum = <P extends object>(points: readonly P[], member: keyof P) =>
  points.reduce((all, point) => all + Number(point[member]), 0);

it('counts a day in slots of ten minutes, also offline, and has it after a restart', async () => {
  const { history, clock, state, folder } = device();
  await history.start();
  for (let minute = 1; minute <= 24 * 60; minute++) {
    // Two hours without a gateway; upstream traffic in the first ten minutes of each hour.
    state.isOnline = minute <= 600 || minute > 720;
    state.tunnel = state.isOnline ? 'online' : 'offline';
    if (minute % 60 < 10) state.requests += 3;
    await clock.advance(60_000);
  }
  const whole = tunnelHistory(history, CREATED);
  expect(sum(whole.points, 'known_seconds')).toBe(86_400);
  expect(sum(whole.points, 'online_seconds')).toBe(22 * 3_600);
  expect(sum(whole.points, 'requests')).toBe(state.requests);
  expect(sum(whole.points, 'sent_bytes')).toBe(100 * state.requests);
  await history.stop();
  // An SD card: a line for each slot, and not more than 200 kB a day.
  expect(readFileSync(join(folder, 'history.jsonl'), 'utf8').split('\n').length).toBeLessThan(150);
  expect(statSync(join(folder, 'history.jsonl')).size).toBeLessThan(50_000);

  const again = device(folder, BEGIN + 26 * 3_600_000);
  await again.history.start();
  onTestFinished(() => again.history.stop());
  const later = deviceHistory(again.history);
  // What is older than a day is gone, and nothing is known of the time in between.
  expect(sum(later.points, 'known_seconds')).toBe(22 * 3_600);
  expect(sum(later.points, 'online_seconds')).toBe(20 * 3_600);
  expect(later.points[0]?.available_disk_bytes).toBeGreaterThan(0);
});

it('loses no time while somebody looks several times a second', async () => {
  const { history, clock } = device();
  await history.start();
  onTestFinished(() => history.stop());
  for (let look = 0; look < 100; look++) {
    await clock.advance(400);
    expect(history.slots.length).toBeGreaterThan(0);
  }
  expect(history.slots.at(-1)?.ran).toBe(40);
});

it('shows nothing of the time before a tunnel was created', async () => {
  const { history, clock } = device();
  await history.start();
  onTestFinished(() => history.stop());
  for (let minute = 1; minute <= 60; minute++) await clock.advance(60_000);
  const created_at = new Date(BEGIN + 45 * 60_000).toISOString();
  expect(tunnelHistory(history, { id: 'tn_2', created_at }).points.map(({ at }) => at.slice(11, 16))).toEqual([
    '00:40',
    '00:50',
    '01:00',
  ]);
});

it('tells the gateway once for how long it ran without a session, to the second, until one takes it', async () => {
  const { history, clock, reports, gateway, change, folder } = device();
  await history.start();
  await clock.advance(90_000);
  change(false);
  await clock.advance(1_000_000);
  gateway.takes = false;
  change(true);
  await clock.advance(30_000);
  await until(() => gateway.refused === 1, 'a refused report');
  gateway.takes = true;
  await clock.advance(600_000);
  await until(() => reports.length > 0, 'a report');
  const begin = BEGIN / 1_000;
  expect(reports.map(({ Slots }) => Slots.map(([at, seconds]) => [at - begin, seconds]))).toEqual([
    [
      [0, 510],
      [600, 490],
    ],
  ]);
  expect(reports[0]?.Slots[0]?.[4]).toBeGreaterThan(0);
  // A short break is no news.
  change(false);
  await clock.advance(5_000);
  change(true);
  await clock.advance(1_200_000);
  await history.stop();
  const again = device(folder, BEGIN + 3_600_000);
  await again.history.start();
  again.change(true);
  await again.clock.advance(60_000);
  await again.history.stop();
  expect([...reports.slice(1), ...again.reports]).toEqual([]);
});
