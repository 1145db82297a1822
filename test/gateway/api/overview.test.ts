import { afterEach, beforeEach, expect, it } from 'vitest';
import type { HistoryEvents } from '../../../src/gateway/api/dashboard/dashboard-history.ts';
import type { DashboardOverview, NeedsAttention } from '../../../src/gateway/api/dashboard/overview.ts';
import { beginCaChange } from '../../../src/gateway/certificates/local-ca/ca-rotation.ts';
import { makeCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import type { LiveEndpoint, LiveSession, LiveTunnel } from '../../../src/gateway/endpoints/live-view.ts';
import type { TlsCertificateRow } from '../../../src/gateway/store/certificates.ts';
import { noteBackup } from '../../../src/gateway/store/last-backup.ts';
import { addDevices, type Filled, fillStore } from '../../support/dashboard.ts';
import { ask } from '../../support/http-request.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { ENDPOINT, LABELLED_TUNNEL, SESSION } from '../../support/online-agent.ts';

const HOST = 'api.gateway.test';
const OWN = { host: HOST, origin: `https://${HOST}`, 'sec-fetch-site': 'same-origin' };
const HOUR_MS = 3_600_000;

let server: ManagementServer;
let sessions: LiveSession[];
let tunnels: LiveTunnel[];
let endpoints: LiveEndpoint[];
let filled: Filled;
let cookie: string;

beforeEach(async () => {
  sessions = [];
  tunnels = [];
  endpoints = [];
  server = await startManagementServer({
    live: { sessions: () => sessions, tunnels: () => tunnels, endpoints: () => endpoints },
  });
  filled = await fillStore(server.store, 'text');
  const body = JSON.stringify({ api_key: server.apiKey });
  const headers = { ...OWN, 'content-type': 'application/json' };
  const { headers: answer } = await send('POST', '/dashboard/session', headers, body);
  cookie = String(answer['set-cookie']).split(';')[0] ?? '';
});
afterEach(() => server.close());

function send(method: string, path: string, headers: Record<string, string>, body?: string) {
  const port = Number(new URL(server.url).port);
  return ask(port, HOST, { method, path, headers, ...(body !== undefined && { body }) });
}

async function overview(): Promise<DashboardOverview & { bytes: number }> {
  const { body } = await send('GET', '/dashboard/overview', { ...OWN, cookie });
  return { ...JSON.parse(body), bytes: body.length };
}

/** The kinds of which some need attention, with how many. */
async function totals(): Promise<Partial<Record<keyof NeedsAttention, number>>> {
  const { attention } = await overview();
  const some = Object.entries(attention).filter(([, { total }]) => total > 0);
  return Object.fromEntries(some.map(([kind, { total }]) => [kind, total]));
}

it('the overview says what needs attention, to those who are signed in', async () => {
  const { devices, domains, lastBackupAt, attention } = await overview();
  expect([devices, domains, lastBackupAt]).toEqual([2, 2, null]);
  expect(attention).toMatchObject({
    expired: { total: 1, first: [{ id: filled.certificates, subject_common_name: 'text', issued_at: null }] },
    expiredAuthorities: { total: 1, first: [{ id: filled.authorities }] },
    failedDomains: { total: 1, first: [{ id: filled.domains, domain: '*.site.example.com', certificate: null }] },
    idleEdges: { total: 1, first: [{ id: filled.edges, hasGroup: true }] },
    offline: { total: 1, first: [{ id: filled.devices, name: 'cabinet-7' }] },
    expiring: { total: 0, first: [] },
    neverOnline: { total: 0, first: [] },
    pending: { total: 1, first: [{ name: 'cabinet-8', last_seen_at: null }] },
  });
  const withoutSession = await send('GET', '/dashboard/overview', OWN);
  const fromElsewhere = await send('GET', '/dashboard/overview', { host: HOST, 'sec-fetch-site': 'same-site', cookie });
  expect([withoutSession.status, fromElsewhere.status]).toEqual([403, 403]);
});

it('of 500 devices that are offline, it counts all and has the newest, in a few kilobytes', async () => {
  const before = (await overview()).bytes;
  const added = await addDevices(server.store, filled.devices, 500);
  const [online] = added;
  sessions = [{ ...SESSION, credentialId: online?.credential_id ?? null }];
  await addDevices(server.store, filled.devices, 7, { last_seen_at: null });
  await addDevices(server.store, filled.devices, 1, { status: 'revoked', credential_id: null });
  await beginCaChange(server.store, await makeCa(), null);
  const { devices, attention, caChange, bytes } = await overview();
  expect(devices).toBe(510);
  expect([attention.offline.total, attention.neverOnline.total]).toEqual([500, 7]);
  expect(attention.offline.first.map(({ id }) => id)).toEqual(
    added
      .slice(-10)
      .reverse()
      .map(({ id }) => id),
  );
  expect(caChange).toMatchObject({ followed: 0, missing: { total: 508 } });
  expect(caChange?.missing.first).toHaveLength(10);
  expect(bytes - before).toBeLessThan(4_000);
});

it('an edge needs no attention while its tunnel group has a tunnel, and says when the group is gone', async () => {
  const { store } = server;
  const { app = '', place = '' } = store.tunnelGroupBackends.get(filled['tunnel-groups'])?.labels ?? {};
  tunnels = [LABELLED_TUNNEL];
  expect((await totals()).idleEdges).toBe(1);
  tunnels = [{ ...LABELLED_TUNNEL, labels: { app, place, more: 'x' } }];
  expect((await totals()).idleEdges).toBeUndefined();
  await store.database.write(() => store.tunnelGroupBackends.delete(filled['tunnel-groups']));
  expect((await overview()).attention.idleEdges.first).toMatchObject([{ hasGroup: false }]);
});

it('certificates that nobody renews need attention before they expire, and once expired those in use', async () => {
  const { store } = server;
  const sample = store.tlsCertificates.get(filled.certificates) as TlsCertificateRow;
  const set = (endsInMs: number, issued_at: string | null) =>
    store.database.write(() => {
      const not_after = new Date(Date.now() + endsInMs).toISOString();
      store.tlsCertificates.update({ ...sample, issued_at, facts: { ...sample.facts, not_after } });
    });
  const found = async () => {
    const { expired, expiring } = (await overview()).attention;
    return [expired.total, expiring.total];
  };
  await set(23 * HOUR_MS, null);
  expect(await found()).toEqual([0, 1]);
  await set(15 * 24 * HOUR_MS, null);
  expect(await found()).toEqual([0, 0]);
  await set(23 * HOUR_MS, '2026-01-01T00:00:00Z');
  expect(await found()).toEqual([0, 0]);
  await set(-HOUR_MS, '2026-01-01T00:00:00Z');
  expect(await found()).toEqual([1, 0]);
  await set(-HOUR_MS, null);
  await store.database.write(() => {
    for (const row of store.reservedDomains.page(null, 10)) {
      store.reservedDomains.update({ ...row, certificate_id: null });
    }
  });
  expect(await found()).toEqual([0, 0]);
  await set(23 * HOUR_MS, null);
  expect(await found()).toEqual([0, 1]);
});

it('the overview says when the last backup was made', async () => {
  await noteBackup(server.store.database, Date.parse('2026-05-10T03:00:00Z'));
  expect((await overview()).lastBackupAt).toBe('2026-05-10T03:00:00Z');
});

it('the history marks what concerns an endpoint or a device, and for the gateway everything but sign-ins to the dashboard', async () => {
  const { store } = server;
  const device = store.devices.get(filled.devices);
  if (device === null) throw new Error('no device');
  const url = 'https://cam.site.example.com';
  endpoints = [{ ...ENDPOINT, url, host: 'cam.site.example.com', credentialId: device.credential_id }];
  const at = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString();
  const note = (type: string, object_id: string, minutes: number, after: object) =>
    store.auditLog.insert({
      ...{
        id: store.ids.next('evt'),
        created_at: at(minutes),
        type,
        object_id,
        by: 'gateway',
        from_address: null,
        part_of: null,
      },
      ...{ before: null, after: { ...after, secret_hash: 'x' } },
    });
  await store.database.write(() => {
    const domain = store.reservedDomains.get(filled.domains);
    const certificate = store.tlsCertificates.get(filled.certificates);
    if (domain === null || certificate === null) throw new Error('not filled');
    const id = store.ids.next('cert');
    store.tlsCertificates.insertWithKey({ ...certificate, id, created_at: at(5), issued_at: at(5) }, '');
    store.reservedDomains.update({ ...domain, certificate_id: id });
    store.devices.update({ ...device, history: [{ at: at(4), what: 'joined again', by: '203.0.113.7' }] });
    note('device_updated.v0', device.id, 9, { name: 'cabinet-7' });
    note('agent_command_created.v0', 'ts_1', 8, { command: 'restart', credential_id: device.credential_id });
    note('agent_command_created.v0', 'ts_2', 8, { command: 'restart', credential_id: 'cr_other' });
    note('domain_updated.v0', filled.domains, 7, { domain: '*.site.example.com' });
    note('endpoint_policy_updated.v0', url, 6, { id: url });
    note('bot_user_updated.v0', filled['bot-users'], 3, { name: 'bot' });
    note('device_updated.v0', device.id, 120, { name: 'too early' });
  });
  const events = async (of: string, key = '') => {
    const query = new URLSearchParams({ of, key, from: at(60), to: at(-1) });
    const { body } = await send('GET', `/dashboard/history-events?${query}`, { ...OWN, cookie });
    return (JSON.parse(body) as HistoryEvents).events;
  };
  const typesOf = async (...of: [string, string?]) => (await events(...of)).map(({ type }) => type);
  const own = ['device joined again', 'certificate_issued.v0', 'endpoint_policy_updated.v0'];
  const changed = ['agent_command_created.v0', 'device_updated.v0'];
  expect(await typesOf('device', device.id)).toEqual([...own, ...changed]);
  expect(await typesOf('endpoint', url)).toEqual([...own, 'domain_updated.v0', ...changed]);
  const all = await typesOf('gateway');
  expect(all.filter((type) => type === 'agent_command_created.v0')).toHaveLength(2);
  expect(all).toContain('bot_user_updated.v0');
  expect(all).not.toContain('dashboard_session_created.v0');
  // Names, and nothing else of the objects.
  expect((await events('device', device.id)).at(-1)?.after).toEqual({ name: 'cabinet-7' });
  const { status } = await send('GET', '/dashboard/history-events?of=gateway&from=yesterday&to=now', {
    ...OWN,
    cookie,
  });
  expect(status).toBe(400);
});
