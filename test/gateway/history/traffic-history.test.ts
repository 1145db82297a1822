import { EventEmitter } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../../../src/gateway/endpoints/traffic-counts.ts';
import { HistoryFile } from '../../../src/gateway/history/history-file.ts';
import type { HistoryRange } from '../../../src/gateway/history/history-points.ts';
import { TrafficHistory } from '../../../src/gateway/history/traffic-history.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import type { HistoryPoint } from '../../../src/management/resources/history.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, getPublic, managementClientOf, startTestGateway } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const HOST = 'cam.gateway.localhost';
const POLICY = JSON.stringify({
  on_http_request: [{ expressions: ["req.url.path == '/private'"], actions: [{ type: 'deny' }] }],
});

const sum = (points: readonly HistoryPoint[]) =>
  points.reduce<Record<string, number>>((all, point) => {
    for (const [name, value] of Object.entries({ ...point, ...point.refused_by }))
      if (typeof value === 'number') all[name] = (all[name] ?? 0) + value;
    return all;
  }, {});

it('counts how requests end, and is there after the gateway has ended and started again', async () => {
  const dataDir = temporaryFolder();
  const first = await startTestGateway({ dataDir, historyDays: 395 });
  const upstream = await listening(
    createServer((req, res) => {
      res.statusCode = Number(req.url?.slice(1)) || 200;
      res.end('0123456789');
    }),
  );
  const session = await agentSession(first).connect();
  const open = async (domain: string, port: number) =>
    (await session.httpEndpoint().domain(domain).trafficPolicy(POLICY).listen(false)).forward(
      `http://127.0.0.1:${port}`,
    );
  void open(HOST, upstream).catch(() => {});
  void open(`dead.${HOST}`, (await freePorts(1)).first).catch(() => {});
  const client = await managementClientOf(first);
  await until(async () => (await client.endpoints.list()).items.length === 2, 'both endpoints are online');
  for (const path of ['/', '/204', '/302', '/404', '/503', '/private'])
    await getPublic(first, `https://${HOST}${path}`);
  expect((await getPublic(first, `https://dead.${HOST}/`)).status).toBe(502);

  const { items } = await client.endpoints.list();
  const { id, url } = items.find(({ host }) => host === HOST) ?? { id: '', url: '' };
  const expected = {
    requests: 6,
    successful: 2,
    redirections: 1,
    client_errors: 1,
    server_errors: 1,
    refused: 1,
    deny: 1,
  };
  let now = await client.endpoints.getHistory(id, { step: 'minute' });
  // What was written a moment ago is not written again for each reader.
  await until(
    async () => {
      now = await client.endpoints.getHistory(id, { step: 'minute' });
      return sum(now.points).requests === expected.requests;
    },
    'all requests are in the history',
    { everyMs: 200 },
  );
  expect(sum(now.points)).toMatchObject({ ...expected, failed: 0, reconnects: 0 });
  expect(now.points.at(-1)?.latency_ms?.p50 ?? now.points.at(-2)?.latency_ms?.p50).toBeLessThan(1_000);
  // What requests have most is counted from the first look on.
  expect(await client.endpoints.getTopRequests(id)).toMatchObject({ requests: 0, paths: [] });
  for (const path of ['/a?token=1', '/a?token=2', '/404']) await getPublic(first, `https://${HOST}${path}`);
  let top = await client.endpoints.getTopRequests(id);
  await until(
    async () => {
      top = await client.endpoints.getTopRequests(id);
      return top.requests === 3;
    },
    'the requests are counted',
    { everyMs: 50 },
  );
  expect(top).toMatchObject({
    paths: [
      { value: '/a', requests: 2, at_least: 2 },
      { value: '/404', requests: 1 },
    ],
    client_networks: [{ value: '127.0.0.1', requests: 3 }],
    statuses: [
      { value: '200', requests: 2 },
      { value: '404', requests: 1 },
    ],
  });
  await first.close();
  // Its SDK may say that the connection is closed already.
  await session.close().catch(() => {});

  const second = await startTestGateway({ dataDir, historyDays: 395 });
  onTestFinished(() => second.close());
  const again = await managementClientOf(second);
  Object.assign(expected, { requests: 9, successful: 4, client_errors: 2 });
  const later = await again.history.get({ url: String(url), step: 'hour' });
  expect(sum(later.points)).toMatchObject(expected);
  expect(sum((await again.history.get({ url: HOST, step: 'hour' })).points)).toMatchObject(expected);
  const all = sum((await again.history.get()).points);
  expect(all).toMatchObject({ ...expected, requests: 10, failed: 1 });
  expect(all.sent_bytes).toBeGreaterThan(50);
  expect(all.known_seconds).toBeGreaterThanOrEqual(sum(later.points).online_seconds ?? 0);
});

/** A history whose clock the test steers, of sessions that it makes up. */
async function steered() {
  const clock = new SteeredClock();
  const file = HistoryFile.open(join(temporaryFolder(), 'history.db'), 395, silentLog);
  const ofAuthtoken = (id: string) => (id === '' ? null : { id: id.replace('cr', 'dev') });
  const devices = { byCredential: ofAuthtoken, ofAuthtoken };
  const begun = clock.now();
  const time = () => Date.UTC(2026, 0, 1) + clock.now() - begun;
  const history = new TrafficHistory(
    { store: { devices } as unknown as Store, clock, log: silentLog },
    { file, node: '', time },
  );
  await history.start();
  const endpoints = new EndpointRegistry();
  const sessions = Object.assign(new EventEmitter(), { sessions: [] });
  history.follow(endpoints, sessions);
  const at = Date.UTC(2026, 0, 1) / 60_000;
  const read = async (key: string, range: Partial<HistoryRange> = {}) => {
    const { steps } = await history.read({ kind: 'device', key }, { from: at, to: at + 240, step: 60, ...range });
    return steps;
  };
  return { clock, file, history, endpoints, sessions, read, at, seconds: () => Math.floor(time() / 1_000) };
}

it('is completed by a device that was cut off, which changes nothing that the gateway has counted', async () => {
  const { clock, history, sessions, read, at, seconds } = await steered();
  const session = { credential: { id: 'cr_1' }, endedBy: 'silent' };
  sessions.emit('added', session);
  await clock.advance(3_600_000);
  sessions.emit('removed', session);
  await clock.advance(3_600_000);
  sessions.emit('added', session);
  // Its clock is years behind. It ran for half an hour without a session; of the rest, it says what cannot be.
  const now = seconds() - 100_000_000;
  const begun = now - 3_600;
  const slot = (after: number, away = 600, temperature: number | null = null) =>
    [begun + after, away, temperature, null, 1_000, -70] as const;
  const slots = [
    ...[slot(0, 600, 40), slot(600, 600, 60), slot(1_200)],
    // While the gateway had a session; in the future; more than a day ago.
    ...[slot(-600), slot(7_200), slot(-90_000)],
  ];
  // Said twice, it counts once.
  for (let times = 0; times < 2; times++) {
    sessions.emit('away', session, { Now: now, Slots: slots });
    await clock.advance(60_000);
  }
  const hours = await read('dev_1');
  expect(hours.map(({ online, away }) => [online, away])).toEqual([
    [3_600, 0],
    [0, 1_800],
    [120, 0],
    [0, 0],
  ]);
  expect(hours[1]?.machine).toEqual([60, null, 1_000, -70]);
  expect(hours[1]?.known).toBe(3_600);
  const minutes = await read('dev_1', { from: at + 60, to: at + 120, step: 1 });
  expect(minutes.map(({ away }) => away)).toEqual(minutes.map((_, minute) => (minute < 30 ? 60 : 0)));
  expect((await read('dev_2')).every(({ away, machine }) => away === 0 && machine === null)).toBe(true);
  // One without a device has no history to complete.
  sessions.emit('away', { credential: { id: '' } }, { Now: now, Slots: slots });
  await history.stop();
});

it('counts why sessions end, of each device and of all', async () => {
  const { clock, history, sessions, read, at } = await steered();
  const session = (id: string, endedBy: string) => ({ credential: { id }, endedBy });
  for (const endedBy of ['silent', 'lost', 'silent']) {
    sessions.emit('added', session('cr_1', endedBy));
    sessions.emit('removed', session('cr_1', endedBy));
  }
  sessions.emit('added', session('cr_2', 'lost'));
  sessions.emit('refused', 'dev_3');
  sessions.emit('refused', null);
  await clock.advance(61_000);
  expect((await read('dev_1'))[0]?.values.sessionsEnded).toEqual({ silent: 2, lost: 1 });
  expect((await read('dev_3'))[0]?.values.sessionsEnded).toEqual({ refused: 1 });
  const { steps } = await history.read({ kind: 'gateway', key: '' }, { from: at, to: at + 60, step: 60 });
  expect(steps[0]?.values.sessionsEnded).toEqual({ silent: 2, lost: 1, refused: 2 });
  await history.stop();
});

it('counts once what is written when summing up fails afterwards', async () => {
  const { clock, file, history, endpoints, at } = await steered();
  vi.spyOn(file, 'sumUp').mockRejectedValueOnce(new Error('disk full'));
  const traffic = new EndpointTraffic();
  const url = `https://${HOST}`;
  endpoints.emit('added', { url, traffic, owner: { credential: { id: '' } } } as unknown as OnlineEndpoint);
  traffic.countRequest();
  traffic.countResponse(200, 1);
  const requests = async () => {
    const { steps } = await history.read({ kind: 'endpoint', key: url }, { from: at, to: at + 60, step: 60 });
    return steps[0]?.values.requests;
  };
  await clock.advance(61_000);
  expect(await requests()).toBe(1);
  await clock.advance(61_000);
  expect(await requests()).toBe(1);
  await history.stop();
});
