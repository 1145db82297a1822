import { createServer } from 'node:http';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { EndpointRegistry } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import type { OnlineEndpoint } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../../../src/gateway/endpoints/traffic-counts.ts';
import { HistoryFile } from '../../../src/gateway/history/history-file.ts';
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
  await first.close();
  await session.close();

  const second = await startTestGateway({ dataDir, historyDays: 395 });
  onTestFinished(() => second.close());
  const again = await managementClientOf(second);
  const later = await again.history.get({ url: String(url), step: 'hour' });
  expect(sum(later.points)).toMatchObject(expected);
  expect(sum((await again.history.get({ url: HOST, step: 'hour' })).points)).toMatchObject(expected);
  const all = sum((await again.history.get()).points);
  expect(all).toMatchObject({ ...expected, requests: 7, failed: 1 });
  expect(all.sent_bytes).toBeGreaterThan(50);
  expect(all.known_seconds).toBeGreaterThanOrEqual(sum(later.points).online_seconds ?? 0);
});

it('counts once what is written when summing up fails afterwards', async () => {
  const clock = new SteeredClock();
  const file = HistoryFile.open(join(temporaryFolder(), 'history.db'), 395, silentLog);
  vi.spyOn(file, 'sumUp').mockRejectedValueOnce(new Error('disk full'));
  const devices = { byCredential: () => null };
  const begun = clock.now();
  const history = new TrafficHistory(
    { store: { devices } as unknown as Store, clock, log: silentLog },
    {
      ...{ file, node: '', time: () => Date.UTC(2026, 0, 1) + clock.now() - begun },
    },
  );
  await history.start();
  const endpoints = new EndpointRegistry();
  history.follow(endpoints, { sessions: [], on: () => {} });
  const traffic = new EndpointTraffic();
  const url = `https://${HOST}`;
  endpoints.emit('added', { url, traffic, owner: { credential: { id: 'cr_1' } } } as unknown as OnlineEndpoint);
  traffic.countRequest();
  traffic.countResponse(200, 1);
  const at = Date.UTC(2026, 0, 1) / 60_000;
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
