import { EventEmitter } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { DataBudget } from '../../../src/agent/connectors/data-budget.ts';
import { GatewayConnector } from '../../../src/agent/connectors/gateway-connector.ts';
import { LinkPace } from '../../../src/agent/connectors/link-pace.ts';
import { installationFor } from '../../../src/agent/join/installation.ts';
import { enrol } from '../../../src/agent/join/join-site.ts';
import { openLink } from '../../../src/agent/open-link.ts';
import { parseBudgetPlan, periodOf } from '../../../src/lib/budget-plan.ts';
import { writeDurably } from '../../../src/lib/files/durable-write.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { upstreamAt } from '../../support/connectors.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { getPublic, managementClientOf, startTestGateway } from '../../support/gateway.ts';
import { serving } from '../../support/loopback.ts';
import { PowerCut, PowerCutFiles } from '../../support/power-cut-files.ts';
import { seeded } from '../../support/seeded.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const DAY_MS = 86_400_000;
const NOVEMBER = Date.UTC(2026, 10, 1);

/** A connection that has carried what it is told to. */
class CountedSocket extends EventEmitter {
  bytesRead = 0;
  bytesWritten = 0;
  remoteFamily = 'IPv4';
}

function budgetOf(text: string, file = join(temporaryFolder(), 'data-budget.json'), write = writeDurably) {
  const time = { now: NOVEMBER };
  const budget = new DataBudget(parseBudgetPlan(text), { file, log: silentLog, now: () => time.now, write });
  const socket = new CountedSocket();
  const pass = (bytes: number) => {
    socket.bytesRead += bytes;
    budget.sample();
  };
  return { budget, time, file, pass, begin: () => budget.meter(socket as unknown as Socket) };
}

it.each([
  ['50MB/month', { bytes: 50e6, period: 'month', startDay: 1 }],
  ['1.5 GB/week@7', { bytes: 1.5e9, period: 'week', startDay: 7 }],
  ['2000kB/day', { bytes: 2e6, period: 'day', startDay: 1 }],
])('%s is a budget', (text, plan) => {
  expect(parseBudgetPlan(text)).toEqual(plan);
});

it.each(['50', '50MB', '50MB/year', '10kB/day', '50MB/month@29', '50MB/month@0', '-5MB/day'])('%s is none', (text) => {
  expect(() => parseBudgetPlan(text)).toThrow();
});

it('periods begin on the day that was asked for', () => {
  const from = (text: string, date: string) => {
    const { start, end } = periodOf(parseBudgetPlan(text), Date.parse(date));
    return [start, end].map((at) => new Date(at).toISOString().slice(0, 10));
  };
  expect(from('5MB/month@15', '2026-01-03T12:00:00Z')).toEqual(['2025-12-15', '2026-01-15']);
  expect(from('5MB/month@15', '2026-01-15T00:00:00Z')).toEqual(['2026-01-15', '2026-02-15']);
  expect(from('5MB/week@1', '2026-11-29T23:00:00Z')).toEqual(['2026-11-23', '2026-11-30']);
  expect(from('5MB/day', '2026-11-29T23:00:00Z')).toEqual(['2026-11-29', '2026-11-30']);
});

it('people are warned at 80 %, tunnels pause at 95 %, and the rest is spread over the period', async () => {
  const { budget, time, pass, begin } = budgetOf('50MB/month');
  await budget.open();
  begin();
  pass(39e6);
  expect(budget.state.level).toBe('warned');
  pass(6.5e6);
  const { level, usedBytes } = budget.state;
  // On the first day, nothing of the rest may be used yet.
  expect([level, budget.mayConnect]).toEqual(['spent', false]);
  expect(usedBytes).toBeLessThan(50e6);
  const next = budget.state.nextAt?.getTime() ?? 0;
  time.now = next + 1;
  expect(budget.mayConnect).toBe(true);
  expect(budget.state.level).toBe('paused');
  // To the end of the period, it comes and goes, and never has more.
  let online = 0;
  for (; time.now < NOVEMBER + 30 * DAY_MS - 1; time.now += 60_000) {
    if (!budget.mayConnect && budget.state.level === 'spent') continue;
    online += 1;
    pass(300);
    expect(budget.state.usedBytes).toBeLessThanOrEqual(50e6);
  }
  expect(online).toBeGreaterThan(1_000);
  time.now = NOVEMBER + 30 * DAY_MS;
  expect(budget.state).toMatchObject({ level: 'normal', usedBytes: 0 });
});

it('a clock that goes backwards begins no period', async () => {
  const { budget, time, pass, begin, file } = budgetOf('5MB/day');
  await budget.open();
  begin();
  pass(1e6);
  time.now -= 5 * DAY_MS;
  expect(budget.state.usedBytes).toBeGreaterThan(1e6);
  await budget.close();
  const again = new DataBudget(parseBudgetPlan('5MB/day'), { file, log: silentLog, now: () => time.now });
  await again.open();
  expect(again.state.usedBytes).toBeGreaterThan(1e6);
});

it('whenever the process ends, the file has at least what was counted', async () => {
  const random = seeded(7);
  for (let round = 0; round < 100; round++) {
    const file = join(temporaryFolder(), 'data-budget.json');
    const isSlow = round % 2 === 1;
    let writing: Promise<unknown> = Promise.resolve();
    let release = () => {};
    // What is being written is there only at the next step but one.
    const write: typeof writeDurably = (...args) => {
      const held = new Promise<void>((resolve) => {
        release = resolve;
        if (!isSlow) resolve();
      });
      const written = held.then(() => writeDurably(...args));
      writing = written;
      return written;
    };
    const { budget, pass, begin } = budgetOf('5MB/day', file, write);
    const opening = budget.open();
    await vi.waitFor(() => {
      release();
      expect(readFileSync(file, 'utf8')).not.toBe('');
    }, 10_000);
    await opening;
    begin();
    for (let step = Math.floor(random() * 12); step > 0; step--) {
      pass(Math.floor(random() * 9_000));
      if (step % 2 === 1) continue;
      release();
      await writing;
    }
    const { usedBytes } = budget.state;
    // The power is cut: only the file is left.
    const text = readFileSync(file, 'utf8');
    const next = budgetOf('5MB/day', file).budget;
    await next.open();
    expect(next.state.usedBytes, `round ${round}: ${text}`).toBeGreaterThanOrEqual(usedBytes);
    expect(next.state.usedBytes).toBeLessThan(usedBytes + 0.05 * 5e6);
  }
});

it('with a power cut at any step of any write, it is never over the budget, and has at least what was counted', async () => {
  const random = seeded(51);
  let disk = new PowerCutFiles(undefined, random);
  const plan = parseBudgetPlan('1MB/day');
  let passed = 0;
  let cuts = 0;
  for (let isOver = false; !isOver && cuts < 1_000; cuts++) {
    disk.operationsLeft = Math.floor(random() * 40);
    let isCut = false;
    const cut = (error: unknown) => {
      isCut ||= error instanceof PowerCut || (error as Error).cause instanceof PowerCut;
      throw error;
    };
    const budget = new DataBudget(plan, {
      ...{ file: '/data/data-budget.json', log: silentLog, now: () => NOVEMBER },
      read: (file) => disk.read(file).catch(cut),
      write: (file, text, mode) => writeDurably(file, text, mode, disk).catch(cut),
    });
    await budget.open();
    const socket = new CountedSocket();
    if (!isCut) budget.meter(socket as unknown as Socket);
    expect(budget.state.usedBytes, `cut ${cuts}`).toBeGreaterThanOrEqual(isCut ? 0 : passed);
    isOver = !isCut && budget.isPaused;
    while (!isCut && !budget.isPaused) {
      socket.bytesRead += Math.floor(random() * 200);
      const before = budget.state.usedBytes;
      await new Promise((resolve) => setImmediate(resolve));
      if (!isCut) passed = Math.max(passed, before);
    }
    disk = disk.restart();
  }
  expect(cuts).toBeGreaterThan(40);
  expect(passed).toBeGreaterThan(0.3 * plan.bytes);
  expect(passed).toBeLessThanOrEqual(plan.bytes);
});

it('an orderly stop loses nothing, and sets nothing aside', async () => {
  const { budget, pass, begin, file } = budgetOf('5MB/day');
  await budget.open();
  begin();
  pass(123_456);
  const { usedBytes } = budget.state;
  await budget.close();
  const again = budgetOf('5MB/day', file).budget;
  await again.open();
  expect(again.state.usedBytes).toBe(Math.ceil(usedBytes));
});

it('a start that fails before the file was read leaves what was counted', async () => {
  const { budget, pass, begin, file } = budgetOf('5MB/day');
  await budget.open();
  begin();
  pass(123_456);
  await budget.close();
  const before = readFileSync(file, 'utf8');
  await budgetOf('5MB/day', file).budget.close();
  expect(readFileSync(file, 'utf8')).toBe(before);
});

it('a clock that was years ahead ends no later period: what was used counts for the present one', async () => {
  const file = join(temporaryFolder(), 'data-budget.json');
  const time = { now: Date.parse('2038-05-05T00:00:00Z') };
  const opened = () => new DataBudget(parseBudgetPlan('5MB/day'), { file, log: silentLog, now: () => time.now }).open();
  const ahead = await opened();
  for (let count = 0; count < 20_000; count++) ahead.dialled();
  expect(ahead.mayConnect).toBe(false);
  await ahead.close();
  time.now = NOVEMBER + 0.5 * DAY_MS;
  const right = await opened();
  expect([right.mayConnect, right.state.until]).toEqual([false, new Date(NOVEMBER + DAY_MS)]);
  time.now = NOVEMBER + DAY_MS;
  expect([right.mayConnect, right.state.usedBytes]).toEqual([true, 0]);
  await right.close();
  // A clock that is not set: only its gateway can prove the time.
  time.now = 5_000;
  expect((await opened()).mayConnect).toBe(true);
});

/** A gateway, and a device that has joined it. */
async function joined() {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const { enrolment } = await enrol(installationFor(await inviteTo(gateway), null, null), {
    ...{ name: 'cab', proxies: NO_PROXIES, clock: systemClock, deadline: 0, onWait: () => {} },
  });
  const client = await managementClientOf(gateway);
  const device = async () => {
    for await (const each of client.devices.all()) return each;
    throw new Error('no device has joined');
  };
  return { gateway, client, device, authtoken: () => enrolment.authtoken };
}

it('whether a link is metered is what an operator says, at once', async () => {
  const { gateway, client, device, authtoken } = await joined();
  const pace = new LinkPace('default', systemClock);
  const options = {
    ...{ authtoken, serverAddr: gateway.sessionAddress, authorities: { pem: gateway.sessionCa }, pace },
    ...{ proxies: NO_PROXIES, version: '1.0.0', log: silentLog, clock: systemClock },
  };
  const agent = new GatewayConnector(options, 'gateway', () => openLink('native', options));
  onTestFinished(() => agent.stop());
  const online = new Promise<void>((resolve) => agent.once('online', resolve));
  await agent.start();
  await online;
  const { id, link } = await device();
  expect([link, pace.kind]).toEqual(['default', 'default']);
  await client.devices.update(id, { link_setting: 'metered' });
  await vi.waitFor(() => expect(pace.kind).toBe('metered'), 5_000);
  expect(await device()).toMatchObject({ link_setting: 'metered', link: 'metered' });
  await client.devices.update(id, { link_setting: 'device' });
  await vi.waitFor(() => expect(pace.kind).toBe('default'), 5_000);
  expect(await device()).toMatchObject({ link_setting: 'device', link: 'default' });
});

it('at 95 %, clients of tunnels get 503 and when to come back, the own API answers, and then the device is away', async () => {
  const { gateway, device, authtoken } = await joined();
  const port = await serving(createServer((req, res) => res.end(Buffer.alloc(req.url === '/small' ? 10 : 60_000))));
  // Most of the period has passed, so most of the rest is there.
  const now = NOVEMBER + 0.9 * DAY_MS;
  const file = join(temporaryFolder(), 'data-budget.json');
  const budget = new DataBudget(parseBudgetPlan('2MB/day'), { file, log: silentLog, now: () => now });
  await budget.open();
  const options = {
    authtoken,
    serverAddr: gateway.sessionAddress,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    version: '1.0.0',
    log: silentLog,
    clock: systemClock,
    budget,
  };
  const agent = new GatewayConnector(options, 'gateway', () => openLink('native', options));
  onTestFinished(() => agent.stop());
  const online = new Promise<void>((resolve) => agent.once('online', resolve));
  await agent.start();
  await online;
  const upstream = upstreamAt(`http://127.0.0.1:${port}`);
  const cam = await agent.open({ protocol: 'http', domain: 'cam.site.localhost', upstream, forwardsTo: 'x' });
  const own = await agent.open({
    protocol: 'http',
    domain: 'agent-cab.site.localhost',
    upstream,
    forwardsTo: 'y',
    isOwn: true,
  });
  expect((await getPublic(gateway, cam.url)).status).toBe(200);
  let answer = await getPublic(gateway, cam.url);
  // For a moment, only the device knows.
  const isTold = () => answer.body.includes('data budget');
  for (let asked = 0; asked < 80 && !isTold(); asked++) answer = await getPublic(gateway, cam.url);
  expect(answer.status, answer.body).toBe(503);
  expect(Number(answer.headers['retry-after'])).toBeGreaterThan(3_600);
  expect(answer.body).toContain('data budget');
  expect(budget.state.usedBytes).toBeLessThan(2e6);
  const { usedBytes } = budget.state;
  for (let asked = 0; asked < 20; asked++) expect((await getPublic(gateway, cam.url)).status).toBe(503);
  // They cost the device nothing.
  expect(budget.state.usedBytes - usedBytes).toBeLessThan(3_000);
  expect(budget.state.level).toBe('paused');
  expect((await getPublic(gateway, `${own.url}/small`)).status).toBe(200);
  await vi.waitFor(async () => {
    if (budget.state.level === 'paused') await getPublic(gateway, own.url).catch(() => {});
    expect(agent.isOnline).toBe(false);
  }, 15_000);
  expect(budget.state.level).toBe('spent');
  expect(budget.state.usedBytes).toBeLessThanOrEqual(2e6);
  await vi.waitFor(() => expect(agent.status.lastError?.message).toContain('online again at'), 5_000);
  // Its gateway knows when it comes, and misses it only then.
  const said = await vi.waitFor(async () => {
    const { data_budget, online_since } = await device();
    expect([data_budget?.state, data_budget?.limit_bytes, online_since]).toEqual(['away', 2e6, null]);
    return data_budget;
  }, 5_000);
  const back = budget.state.nextAt?.getTime() ?? 0;
  expect(Math.abs(Date.parse(said?.back_at ?? '') - (Date.now() + back - now))).toBeLessThan(5_000);
  expect(budget.state.tunnels.map(([url]) => url).sort()).toEqual([own.url, cam.url].sort());
  const shared = budget.state.tunnels.reduce((sum, [, bytes]) => sum + bytes, 0);
  expect(shared / budget.state.usedBytes).toBeGreaterThan(0.9);
  expect(shared).toBeLessThan(budget.state.usedBytes);
});
