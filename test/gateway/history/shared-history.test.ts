import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { HistoryFile, MINUTES } from '../../../src/gateway/history/history-file.ts';
import { pointsOf, type SubjectName } from '../../../src/gateway/history/history-points.ts';
import { Values } from '../../../src/gateway/history/history-values.ts';
import { SharedHistory } from '../../../src/gateway/history/shared-history.ts';
import { Postgres } from '../../../src/gateway/store/shared/postgres.ts';
import type { HistoryPoint } from '../../../src/management/resources/history.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, getPublic, managementClientOf, startTestGateway } from '../../support/gateway.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const HOST = 'cam.gateway.localhost';
const BEGIN = Date.UTC(2026, 0, 1) / 60_000;

it('is the sum of all gateways, also of one that is gone', { ...unless(NO_POSTGRES), timeout: 60_000 }, async () => {
  const server = await PostgresServer.start();
  onTestFinished(() => server.end());
  const start = async () => {
    const { first } = await freePorts(3);
    const ports = { httpsPort: first, httpPort: first + 1, sessionPort: first + 2, nodeAddress: `127.0.0.1:${first}` };
    return startTestGateway({ ...ports, databaseUrl: server.url(), encryptionKey: KEY, historyDays: 395 });
  };
  const gateways = [await start(), await start()] as const;
  onTestFinished(async () => void (await Promise.all(gateways.map((gateway) => gateway.close()))));
  // The second one has replaced the authtoken that the first one had issued.
  const session = await agentSession({ ...gateways[0], authtoken: gateways[1].authtoken }).connect();
  onTestFinished(() => session.close());
  const policy = JSON.stringify({
    on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 200 } }] }],
  });
  await session.httpEndpoint().domain(HOST).trafficPolicy(policy).listen(false);
  const client = await managementClientOf(gateways[1]);
  await until(async () => (await client.endpoints.list()).items.length > 0, 'the other gateway knows the endpoint');
  for (const gateway of [...gateways, ...gateways]) await getPublic(gateway, `https://${HOST}/`);
  const id = (await client.endpoints.list()).items[0]?.id ?? '';
  const total = (points: readonly HistoryPoint[]) => points.reduce((sum, { requests }) => sum + requests, 0);
  // Counted by the gateway that has the session, wherever clients come in.
  let points: readonly HistoryPoint[] = [];
  const isComplete = async () => {
    ({ points } = await client.endpoints.getHistory(id));
    return total(points) === 4;
  };
  // What was written a moment ago is not written again for each reader.
  await until(isComplete, 'all requests are in the history', { everyMs: 200 });
  expect(points.at(-1)?.online_seconds).toBeLessThanOrEqual(points.at(-1)?.known_seconds ?? 0);

  // What a gateway has passed on counts once it does not answer, or for the time before its file begins.
  const postgres = new Postgres(server.url());
  onTestFinished(() => postgres.close());
  const file = HistoryFile.open(join(temporaryFolder(), 'history.db'), 395, silentLog);
  onTestFinished(() => file.close());
  const cam = { kind: 'endpoint', key: 'https://old.example.com', device: 'dev_1' } as const;
  const own = { kind: 'gateway', key: 'lost:443', device: '' } as const;
  await file.write(
    [],
    [own, cam].map((of) => ({ of, since: BEGIN * 60, until: null })),
    BEGIN * 60,
  );
  for (let at = BEGIN; at < BEGIN + 2 * MINUTES.days; at += MINUTES.hours) {
    const values = new Values();
    values.requests = 2;
    values.tallies = { deny: 1 };
    await file.write([{ of: cam, at, values }], [], at * 60 + 3_600);
    await file.sumUp(at + MINUTES.hours);
  }
  const lost = new SharedHistory(postgres.ask, 'lost:443', 395);
  const away = { device: 'dev_1', at: BEGIN + 600, seconds: 300, machine: [51.5, null, null, -70] as const };
  await file.write([], [], (BEGIN + 2 * MINUTES.days) * 60, [away]);
  await lost.take(file);
  await lost.take(file);
  const read = async (of: SubjectName, step: number, asked: [string, number][] = []) => {
    const range = { from: BEGIN, to: BEGIN + 2 * MINUTES.days, step };
    const other = new SharedHistory(postgres.ask, 'here:443', 395);
    return pointsOf([await other.part(of, range, new Map(asked))], range, (BEGIN + 3 * MINUTES.days) * 60);
  };
  const day = { requests: 48, known: 86_400, online: 86_400 };
  const shown = (all: Awaited<ReturnType<typeof read>>) =>
    all.map(({ known, online, values }) => ({ requests: values.requests, known, online }));
  expect(shown(await read(cam, MINUTES.days))).toEqual([day, day]);
  expect(shown(await read({ kind: 'endpoint', key: 'old.example.com' }, MINUTES.days))).toEqual([day, day]);
  expect(shown(await read({ kind: 'gateway', key: '' }, MINUTES.days))).toEqual([
    { ...day, requests: 0 },
    { ...day, requests: 0 },
  ]);
  const hours = await read({ kind: 'device', key: 'dev_1' }, MINUTES.hours);
  expect(hours.map(({ values }) => values.refusals)).toEqual(hours.map(() => ({ deny: 1 })));
  // The device has told the gateway that is gone; the endpoint that it had bound says the same.
  const half = { from: BEGIN + 600, to: BEGIN + 660, step: MINUTES.hours };
  const here = new SharedHistory(postgres.ask, 'here:443', 395);
  for (const of of [{ kind: 'device', key: 'dev_1' }, cam] as const) {
    expect((await here.part(of, half, new Map())).away).toEqual([
      { at: away.at, seconds: 300, machine: [51.5, null, null, -70] },
    ]);
  }
  // Lists have what it had, too.
  const lastDay = { from: BEGIN + MINUTES.days, to: BEGIN + 2 * MINUTES.days, step: MINUTES.hours };
  const [ofCam] = await here.briefParts([cam, { kind: 'device', key: 'dev_1' }], lastDay, new Map());
  const listed = pointsOf(ofCam === undefined ? [] : [ofCam], lastDay, (BEGIN + 3 * MINUTES.days) * 60);
  expect(shown(listed)).toEqual(listed.map(() => ({ requests: 2, known: 3_600, online: 3_600 })));
  expect(await here.briefParts([cam], lastDay, new Map([['lost:443', BEGIN]]))).toEqual([]);
  expect(shown(await read(cam, MINUTES.days, [['lost:443', BEGIN]]))).toEqual(
    [day, day].map((each) => ({ ...each, requests: 0 })),
  );

  // A gateway that has lost its disk after some hours begins another file: both count, also on the day that the first one has not ended.
  const again = HistoryFile.open(join(temporaryFolder(), 'history.db'), 395, silentLog);
  onTestFinished(() => again.close());
  const third = BEGIN + 2 * MINUTES.days;
  const count = async (into: HistoryFile, at: number) => {
    const values = new Values();
    values.requests = 2;
    await into.write([{ of: cam, at, values }], [], at * 60 + 1_800);
    await into.sumUp(at - (at % MINUTES.hours) + MINUTES.hours);
    await lost.take(into);
  };
  await count(file, third);
  await again.write([], [{ of: cam, since: (third + 90) * 60, until: null }], (third + 90) * 60);
  await count(again, third + 90);
  await count(again, third + MINUTES.days + 30);
  await again.sumUp(third + 2 * MINUTES.days);
  await lost.take(again);
  const later = { from: third, to: third + 2 * MINUTES.days, step: MINUTES.days };
  const requests = async (asked: [string, number][], step: number) => {
    const range = { ...later, step };
    const steps = pointsOf([await here.part(cam, range, new Map(asked))], range, later.to * 60);
    return steps.map(({ values }) => values.requests).filter((each) => each > 0);
  };
  for (const step of [MINUTES.hours, MINUTES.days]) {
    const [before, after] = step === MINUTES.hours ? [[2], [2, 2]] : [[2], [4, 2]];
    expect(await requests([['lost:443', again.begun]], step)).toEqual(before);
    expect(await requests([], step)).toEqual(step === MINUTES.hours ? [...before, ...after] : after);
  }
});
