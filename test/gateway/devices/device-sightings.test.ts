import { EventEmitter } from 'node:events';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { BudgetReport } from '../../../src/agent-protocol/messages.ts';
import { type DeviceSession, DeviceSightings } from '../../../src/gateway/devices/device-sightings.ts';
import type { Activity } from '../../../src/gateway/store/events.ts';
import { issueCredential } from '../../../src/gateway/store/tokens.ts';
import { NO_ACTIVITY } from '../../support/edge-context.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { startManagementServer } from '../../support/management-server.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const START = Date.parse('2026-03-01T00:00:00Z');
const MINUTE_MS = 60_000;

/** Sessions that come and go on demand. */
class Sessions extends EventEmitter<
  Record<'added' | 'removed', [DeviceSession]> & Record<'budget', [DeviceSession, BudgetReport]>
> {
  readonly sessions = new Set<DeviceSession>();

  add(session: DeviceSession): void {
    this.sessions.add(session);
    this.emit('added', session);
  }

  /** Its agent says how its data budget is. */
  report(session: DeviceSession, report: Partial<BudgetReport>): void {
    const usual = { RetryAfterS: 0, Exempt: [], LimitBytes: 5e6, PeriodS: 36_000, BackInS: 0 };
    this.emit('budget', session, { UsedPercent: 10, ...usual, ...report });
  }

  remove(session: DeviceSession): void {
    this.sessions.delete(session);
    this.emit('removed', session);
  }
}

/** A management server whose time is steered, and devices that have joined. */
async function setUp(names = ['one']) {
  const clock = new SteeredClock();
  const began = clock.now();
  const noted: string[] = [];
  const activity: Activity = { note: (type) => void noted.push(type), sample() {} };
  const server = await startManagementServer({ activity, clock, wallClock: () => START + clock.now() - began });
  onTestFinished(() => server.close());
  const { secret } = await enrolmentKey(server);
  const joined = [];
  for (const name of names) {
    const { body } = await server.call('POST', '/enrolments', { install_key: installKey(), secret, name });
    const id = String(body.device_id);
    const session = (address = '203.0.113.7', silentMs = 0): DeviceSession => ({
      credential: { id: server.store.devices.get(id)?.credential_id ?? '' },
      agent: { program: 'device-agent/1.2.3' },
      address,
      hasBudget: true,
      link: null,
      silentMs,
    });
    joined.push({ id, session });
  }
  const sessions = new Sessions();
  await server.sightings.start(sessions);
  onTestFinished(() => server.sightings.stop());
  const pass = async (ms: number) => {
    await clock.advance(ms);
    // Commits of what was due.
    await server.store.database.write(() => {});
  };
  return {
    server,
    clock,
    sessions,
    joined,
    noted,
    pass,
    seen: async (id: string) => (await server.call('GET', `/devices/${id}`)).body,
  };
}

type Joined = Awaited<ReturnType<typeof setUp>>['joined'][number];

it('a device whose session ends was last seen then, at once, with its address and version', async () => {
  const { sessions, joined, pass, seen, server } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const first = session();
  sessions.add(first);
  await pass(41 * MINUTE_MS + 7_000);
  sessions.remove(first);
  const expected = {
    online_since: null,
    last_seen_at: '2026-03-01T00:41:07Z',
    ip: '203.0.113.7',
    agent_version: 'device-agent/1.2.3',
  };
  expect(await seen(id)).toMatchObject(expected);
  await pass(MINUTE_MS);
  expect(server.store.devices.get(id)).toMatchObject({ last_seen_at: expected.last_seen_at, online: false });
  expect(await seen(id)).toMatchObject(expected);
});

it('a device that fell silent was last seen when it was last heard', async () => {
  const { sessions, joined, pass, seen } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const silent = session('203.0.113.7', 31_000);
  sessions.add(silent);
  await pass(MINUTE_MS);
  sessions.remove(silent);
  expect((await seen(id)).last_seen_at).toBe('2026-03-01T00:00:29Z');
});

it('a device stays online until the last of its sessions ends', async () => {
  const { sessions, joined, pass, server } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const [one, two] = [session(), session('203.0.113.8')];
  sessions.add(one);
  sessions.add(two);
  sessions.remove(one);
  await pass(MINUTE_MS);
  expect(server.store.devices.get(id)).toMatchObject({ online: true, last_ip: '203.0.113.8' });
});

it('a revoked device was last seen when its session ended', async () => {
  const { sessions, joined, pass, seen, server } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const open = session();
  sessions.add(open);
  await pass(5 * MINUTE_MS);
  await server.call('POST', `/devices/${id}/revoke`);
  sessions.remove(open);
  expect((await seen(id)).last_seen_at).toBe('2026-03-01T00:05:00Z');
  await pass(MINUTE_MS);
  expect(server.store.devices.get(id)?.last_seen_at).toBe('2026-03-01T00:05:00Z');
});

it('of a rotated device, only a session with its present authtoken counts as one at another gateway', async () => {
  const { joined, pass, server, clock } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const online = () => server.store.devices.get(id)?.online;
  const elsewhere = new Set([session().credential.id]);
  const sessions = new Sessions();
  const context = { ...server, log: silentLog, activity: NO_ACTIVITY };
  const sightings = new DeviceSightings(context, (credential) => elsewhere.has(credential), clock);
  await sightings.start(sessions);
  onTestFinished(() => sightings.stop());
  const change = async (credential_id: string | null) => {
    const row = server.store.devices.get(id);
    if (row) await server.store.database.write(() => server.store.devices.update({ ...row, credential_id }));
  };
  const before = session();
  sessions.add(before);
  sessions.remove(before);
  await pass(MINUTE_MS);
  expect(online()).toBe(true);
  // Rotated: both gateways end their sessions, and each still sees that of the other one.
  sessions.add(before);
  await change(null);
  sessions.remove(before);
  await pass(MINUTE_MS);
  expect(online()).toBe(false);
  // It is at the other one with its next authtoken before its session here has ended.
  await change(before.credential.id);
  sessions.add(before);
  await pass(MINUTE_MS);
  const { row: next } = await server.store.database.write(() => issueCredential(server.store, { acl: [] }));
  await change(next.id);
  elsewhere.clear();
  elsewhere.add(next.id);
  sessions.remove(before);
  await pass(MINUTE_MS);
  expect(online()).toBe(true);
});

it('a device that is away for its data budget is missed once it is late, and says how much it has used', async () => {
  const { sessions, joined, noted, pass, seen, server } = await setUp(['one', 'two']);
  const [one, two] = joined as [Joined, Joined];
  const conditions = async () => (await server.conditions()).map(({ id, message }) => `${id}: ${message}`);
  const states = async () => {
    const list = async (state: string) => (await server.call('GET', `/devices?state=${state}`)).body.devices;
    return { away: (await list('away')) as { id: string }[], offline: (await list('offline')) as { id: string }[] };
  };
  const [first, other] = [one.session(), two.session()];
  sessions.add(first);
  sessions.add(other);
  sessions.report(first, { UsedPercent: 81 });
  sessions.report(first, { UsedPercent: 85 });
  expect((await seen(one.id)).data_budget).toEqual({
    ...{ state: 'low', used_percent: 85, limit_bytes: 5e6, ends_at: '2026-03-01T10:00:00Z', back_at: null },
  });
  sessions.report(first, { UsedPercent: 95, RetryAfterS: 36_000 });
  sessions.report(first, { UsedPercent: 96, RetryAfterS: 36_000, BackInS: 1_800 });
  expect(noted).toEqual(['data_budget_low.v0', 'data_budget_used_up.v0']);
  sessions.remove(first);
  sessions.remove(other);
  await pass(MINUTE_MS);
  expect(await conditions()).toEqual([
    'device_offline: devices are offline: two at site.example.com',
    'data_budget: devices have nearly used up their data budgets: one',
  ]);
  const { away, offline } = await states();
  expect([away.map(({ id }) => id), offline.map(({ id }) => id)]).toEqual([[one.id], [two.id]]);
  expect((await seen(one.id)).data_budget).toMatchObject({ state: 'away', back_at: '2026-03-01T00:30:00Z' });
  // It comes when it has said, and leaves again: nothing of the event is repeated in this period.
  await pass(29 * MINUTE_MS);
  const again = one.session();
  sessions.add(again);
  expect((await seen(one.id)).data_budget).toMatchObject({ state: 'paused', back_at: null });
  sessions.report(again, { UsedPercent: 97, RetryAfterS: 34_000, BackInS: 3_600 });
  sessions.remove(again);
  expect(noted).toHaveLength(2);
  await pass(62 * MINUTE_MS);
  expect((await conditions())[0]).toContain('offline: two at');
  await pass(2 * MINUTE_MS);
  expect((await conditions())[0]).toContain('one at site.example.com');
  // Its setting was removed.
  sessions.add({ ...one.session(), hasBudget: false });
  expect((await seen(one.id)).data_budget).toBeNull();
});

it('devices that were online when the gateway was killed were last seen at most 10 s before', async () => {
  const { sessions, joined, pass, seen, server } = await setUp(['one', 'two', 'three']);
  const [one, two, three] = joined as [Joined, Joined, Joined];
  const early = three.session();
  sessions.add(early);
  sessions.add(one.session());
  await pass(MINUTE_MS);
  sessions.remove(early);
  sessions.add(two.session());
  await pass(20 * MINUTE_MS + 5_000);
  // What a killed gateway leaves behind, as the next one reads it.
  const next = new DeviceSightings({ ...server, log: silentLog, activity: NO_ACTIVITY }, null, new SteeredClock());
  await next.start(new Sessions());
  for (const { id } of [one, two]) {
    const at = Date.parse(String(server.store.devices.get(id)?.last_seen_at)) - START;
    expect(at).toBeGreaterThanOrEqual(21 * MINUTE_MS - 5_000);
    expect(at).toBeLessThanOrEqual(21 * MINUTE_MS + 5_000);
  }
  expect((await seen(three.id)).last_seen_at).toBe('2026-03-01T00:01:00Z');
});

it('devices that are online when the gateway stops were last seen then', async () => {
  const { sessions, joined, pass, server } = await setUp();
  const [{ id, session }] = joined as [Joined];
  sessions.add(session());
  await pass(MINUTE_MS + 3_000);
  await server.sightings.stop();
  expect(server.store.devices.get(id)).toMatchObject({ online: false, last_seen_at: '2026-03-01T00:01:03Z' });
});

it('devices that come, stay and go cause one small write in 10 s, and none without a device', async () => {
  const { sessions, joined, pass, server, clock } = await setUp(['one', 'two', 'three']);
  const { database } = server.store;
  const commits = async (ms: number) => {
    const before = database.commits;
    await clock.advance(ms);
    return database.commits - before;
  };
  expect(await commits(MINUTE_MS)).toBe(0);
  const open = joined.map(({ session }) => session());
  for (const one of open) sessions.add(one);
  // At once, then every 10 s.
  expect(await commits(MINUTE_MS)).toBe(7);
  for (const one of open) {
    sessions.remove(one);
    sessions.add(one);
  }
  expect(await commits(MINUTE_MS)).toBe(6);
  for (const one of open) sessions.remove(one);
  expect(await commits(10_000)).toBe(1);
  await pass(0);
  expect(await commits(MINUTE_MS)).toBe(0);
  expect(clock.sleeping).toBe(0);
});

it('what devices say during a write is written once, and nothing after a stop', async () => {
  const { sessions, joined, server, clock, pass } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const open = session();
  const { database } = server.store;
  const write = database.write.bind(database);
  let ready = () => {};
  const isReady = new Promise<void>((resolve) => {
    ready = resolve;
  });
  onTestFinished(() => ready());
  const slow = vi.spyOn(database, 'write').mockImplementation((work) => isReady.then(() => write(work)));
  sessions.add(open);
  await clock.advance(0);
  sessions.report(open, { BackInS: 1_800 });
  sessions.report(open, { BackInS: 1_800 });
  expect([slow.mock.calls.length, clock.sleeping]).toEqual([1, 0]);
  slow.mockRestore();
  ready();
  await vi.waitFor(() => expect(clock.sleeping).toBe(1));
  // The device leaves: it is written sooner than in 10 s, once.
  await pass(1_000);
  await vi.waitFor(() =>
    expect([server.store.devices.get(id)?.data_budget?.state, clock.sleeping]).toEqual(['away', 1]),
  );
  await server.sightings.stop();
  expect(clock.sleeping).toBe(0);
});

it('the link of a device is written when a session says another one, not when another gateway has written its own', async () => {
  const { sessions, joined, server, pass } = await setUp();
  const [{ id, session }] = joined as [Joined];
  const open: { -readonly [key in keyof DeviceSession]: DeviceSession[key] } = session();
  open.link = 'default';
  sessions.add(open);
  await pass(MINUTE_MS);
  const link = () => server.store.devices.get(id)?.link;
  expect(link()).toBe('default');
  await server.store.database.write(() => server.store.devices.saw(id, { link: 'metered' }));
  server.sightings.changed(id);
  await pass(MINUTE_MS);
  expect(link()).toBe('metered');
  server.sightings.changed(id);
  open.link = null;
  server.sightings.changed(id);
  await pass(MINUTE_MS);
  expect(link()).toBe('metered');
  open.link = 'metered';
  server.sightings.changed(id);
  open.link = 'default';
  server.sightings.changed(id);
  await pass(MINUTE_MS);
  expect(link()).toBe('default');
});
