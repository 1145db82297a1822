import { expect, it, onTestFinished } from 'vitest';
import type { LiveSession, SessionCommand } from '../../../src/gateway/endpoints/live-view.ts';
import type { DeviceRow } from '../../../src/gateway/store/devices.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import type { BulkAction } from '../../../src/management/resources/bulk-action.ts';
import { addDevices, fillStore } from '../../support/dashboard.ts';
import { startManagementServer } from '../../support/management-server.ts';
import { SESSION } from '../../support/online-agent.ts';
import { until } from '../../support/until.ts';

async function start() {
  const sessions: LiveSession[] = [];
  const told: [session: string, command: SessionCommand][] = [];
  const command = (id: string, what: SessionCommand) => {
    told.push([id, what]);
    return true;
  };
  const server = await startManagementServer({ live: { sessions: () => sessions, command } });
  onTestFinished(() => server.close());
  const { store } = server;
  const sample = (await fillStore(store, 'text')).devices;
  await addDevices(store, sample, 120, { site: 'north.example.com' });
  const south = await addDevices(store, sample, 3, { site: 'south.example.com', labels: { floor: '1', old: 'x' } });
  const begin = async (body: object) => {
    const { status, body: answer } = await server.call('POST', '/bulk_actions', body);
    return [status, answer] as [number, BulkAction & { error_code: string; msg: string }];
  };
  const ended = async ({ id }: { id: string }) => {
    const get = async () => (await server.call('GET', `/bulk_actions/${id}`)).body as unknown as BulkAction;
    await until(async () => (await get()).state !== 'running', 'the bulk action ends');
    return get();
  };
  return { server, store, sessions, told, south, begin, ended };
}

it('labels all devices that a filter chooses, as one act in the audit log with its count', async () => {
  const { server, store, begin, ended } = await start();
  const counted = await server.call('POST', '/bulk_actions/count', {
    ...{ action: 'label', labels: { kind: 'lift' }, filter: { site: '*.north.example.com' } },
  });
  expect(counted.body).toMatchObject({ devices: 120, online: 0, unfit: 0 });
  const [status, begun] = await begin({
    ...{ action: 'label', labels: { kind: 'lift' }, remove_labels: ['place'], expected_devices: 120 },
    filter: { site: '*.north.example.com' },
  });
  expect([status, begun.devices]).toEqual([201, 120]);
  expect(await ended(begun)).toMatchObject({ state: 'finished', done: 120, failed: 0, left: 0, failures: [] });
  const { devices } = store;
  expect(devices.where("site = 'north.example.com'", []).every(({ labels }) => labels.kind === 'lift')).toBe(true);
  expect(devices.where("labels LIKE '%lift%'", [])).toHaveLength(120);
  expect(devices.where("labels LIKE '%place%'", [])).toHaveLength(2);

  const events = async (query: string) =>
    (await server.call('GET', `/audit_events?${query}`)).body.audit_events as {
      type: string;
      object_id: string;
      after: { devices: number };
      part_of: string | null;
    }[];
  const listed = (await events('')).filter(({ type }) => /bulk_action|device/.test(type));
  expect(listed.map(({ type }) => type)).toEqual(['bulk_action_created.v0']);
  expect(listed[0]?.after.devices).toBe(120);
  expect(await events(`part_of=${begun.id}&limit=100`)).toHaveLength(100);
  const one = devices.where("site = 'north.example.com' LIMIT 1", [])[0] as DeviceRow;
  expect(await events(`object_id=${one.id}`)).toMatchObject([{ type: 'device_updated.v0', part_of: begun.id }]);
});

it('revokes chosen devices and ends their sessions, and says for which it failed', async () => {
  const { server, store, south, begin, ended } = await start();
  const [, begun] = await begin({ action: 'revoke', device_ids: south.map(({ id }) => id) });
  expect(await ended(begun)).toMatchObject({ done: 3, failed: 0 });
  expect(south.map(({ id }) => store.devices.get(id)?.status)).toEqual(['revoked', 'revoked', 'revoked']);
  expect(server.revoked.flatMap(({ credentialIds = [] }) => credentialIds).toSorted()).toEqual(
    south.map(({ credential_id }) => credential_id).toSorted(),
  );
  const [, again] = await begin({ action: 'rotate', filter: { site: 'south.example.com' } });
  const failed = await ended(again);
  expect(failed).toMatchObject({ done: 0, failed: 3 });
  expect(failed.failures[0]?.reason).toMatch(/^the device \S+ is revoked$/);
  const [, deleted] = await begin({ action: 'delete', filter: { state: 'revoked' } });
  expect(await ended(deleted)).toMatchObject({ done: 3 });
  expect(south.map(({ id }) => store.devices.get(id))).toEqual([null, null, null]);
});

it('tells agents that are online to restart, or ends their sessions', async () => {
  const { sessions, told, south, begin, ended } = await start();
  const [first, second] = south;
  sessions.push({ ...SESSION, id: 'ts_1', credentialId: first?.credential_id ?? null });
  sessions.push({ ...SESSION, id: 'ts_2', credentialId: second?.credential_id ?? null });
  const [, begun] = await begin({ action: 'restart', filter: { site: 'south.example.com' } });
  expect(await ended(begun)).toMatchObject({ done: 2, failed: 1, failures: [{ reason: 'offline' }] });
  const [, other] = await begin({ action: 'disconnect', device_ids: [first?.id] });
  expect(await ended(other)).toMatchObject({ done: 1, failed: 0 });
  expect(told).toEqual([
    ['ts_1', 'restart'],
    ['ts_2', 'restart'],
    ['ts_1', 'disconnect'],
  ]);
});

it('does nothing unless the choice is clear, and is what was counted', async () => {
  const { store, south, begin } = await start();
  const id = south[0]?.id;
  for (const [body, text] of [
    [{ action: 'revoke' }, /device_ids or filter/],
    [{ action: 'revoke', device_ids: [id], filter: {} }, /device_ids or filter/],
    [{ action: 'revoke', device_ids: ['dev_1'] }, /no device has the id dev_1/],
    [{ action: 'revoke', filter: { site: 'nowhere.example.com' } }, /no device is chosen/],
    [{ action: 'revoke', filter: {}, expected_devices: 7 }, /7 devices were expected, and 125 are chosen now/],
    [{ action: 'label', filter: {} }, /labels: send some/],
    [{ action: 'revoke', filter: {}, labels: { a: 'b' } }, /revoke takes none/],
    [{ action: 'move', filter: {} }, /must be one of label/],
  ] as const) {
    const [status, { msg }] = await begin(body);
    expect([status, msg], JSON.stringify(body)).toEqual([400, expect.stringMatching(text)]);
  }
  expect(store.devices.where("status = 'revoked'", [])).toEqual([]);
  expect(store.bulkActions.where("by <> 'text'", [])).toEqual([]);
});

it('stops when it is cancelled, and when who began it loses the right', async () => {
  const { server, store, begin, ended } = await start();
  const { row, token } = await store.database.write(() => issueApiKey(store, { description: 'stolen' }));
  const sent = await server.call(
    'POST',
    '/bulk_actions',
    { action: 'restart', filter: {} },
    { Authorization: `Bearer ${token}` },
  );
  await store.database.write(() => store.apiKeys.delete(row.id));
  expect(await ended({ id: sent.id })).toMatchObject({
    state: 'cancelled',
    end_reason: expect.stringMatching(/may not/),
  });
  const [, begun] = await begin({ action: 'restart', filter: {} });
  const cancelled = await server.call('POST', `/bulk_actions/${begun.id}/cancel`);
  expect(cancelled.body).toMatchObject({ state: 'cancelled', end_reason: expect.stringMatching(/^cancelled by ak_/) });
  expect(cancelled.body.left).toBeGreaterThan(0);
});

it('goes on after the gateway was killed: what was being told is not told again, the rest is done once', async () => {
  const { server, store, south, told, sessions, ended } = await start();
  for (const [number, { credential_id }] of south.entries())
    sessions.push({ ...SESSION, id: `ts_${number}`, credentialId: credential_id });
  const { bulkActions, database, ids, now } = store;
  const [first, second, third] = south.map(({ id, name }) => ({ device_id: id, name }));
  const id = ids.next('blk');
  // As a gateway that was killed has left it: the first was being told.
  await database.write(() => {
    const row = bulkActions.newRow({
      ...{ id, created_at: now(), action: 'restart', state: 'running', devices: 3, by: 'gateway' },
    });
    bulkActions.begin(
      row,
      [first, second, third].flatMap((each) => each ?? []),
    );
    bulkActions.had(id, first?.device_id ?? '', 'not known');
  });
  server.wakeBulkActions();
  expect(await ended({ id })).toMatchObject({ done: 2, failed: 1, left: 0, failures: [{ reason: 'not known' }] });
  expect(told.map(([session]) => session).toSorted()).toEqual(['ts_1', 'ts_2']);
});
