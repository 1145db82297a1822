import { randomBytes } from 'node:crypto';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import type { LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import type { DeviceRow } from '../../../src/gateway/store/devices.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { ManagementClient } from '../../../src/management/client.ts';
import { RESOURCES } from '../../../src/management/operations.ts';
import { type ReadableResource, sortsOf } from '../../../src/management/resources/resource.ts';
import { fillStore } from '../../support/dashboard.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { startManagementServer } from '../../support/management-server.ts';
import { ENDPOINT, SESSION } from '../../support/online-agent.ts';

const sessions: LiveSession[] = [];
beforeEach(() => {
  sessions.length = 0;
});
const endpoints = [
  ENDPOINT,
  { ...ENDPOINT, id: `${ENDPOINT.id.slice(0, -1)}Z`, url: 'tcp://tcp.example.com:20000', proto: 'tcp', name: 'Lift' },
];

async function start() {
  const server = await startManagementServer({ live: { sessions: () => sessions, endpoints: () => endpoints } });
  onTestFinished(() => server.close());
  const names = async (query: string) => {
    const { status, body } = await server.call('GET', `/devices?${query}`);
    expect([status, body.msg]).toEqual([200, undefined]);
    return (body.devices as { name: string }[]).map(({ name }) => name).sort();
  };
  return { server, names };
}

it('lists of devices are searched, and limited by state, site, label and version', async () => {
  const { server, names } = await start();
  const { devices, database } = server.store;
  const join = async (name: string, site: string, labels: Record<string, string>) => {
    const { secret } = await enrolmentKey(server, { site: `*.${site}`, labels });
    const { body } = await server.call('POST', '/enrolments', { install_key: installKey(), secret, name });
    return devices.named(String(body.name))[0] ?? null;
  };
  const lift = await join('lift-1', 'north.example.com', { floor: '1', kind: 'lift' });
  const cam = await join('cam-1', 'north.example.com', { floor: '2' });
  await join('pump', 'xn--mnchen-3ya.example.com', { floor: '1' });
  sessions.push({ ...SESSION, credentialId: lift?.credential_id ?? null });
  await database.write(
    () => cam && devices.update({ ...cam, last_seen_at: '2026-01-01T00:00:00Z', agent_version: 'agent/1.2.3' }),
  );

  expect(await names('search=CAM-1')).toEqual(['cam-1']);
  expect(await names('search=north')).toEqual(['cam-1', 'lift-1']);
  expect(await names(`search=${encodeURIComponent('münchen')}`)).toEqual(['pump']);
  expect(await names(`search=${encodeURIComponent("%' OR 1")}`)).toEqual([]);
  expect(await names('state=online')).toEqual(['lift-1']);
  expect(await names('state=offline')).toEqual(['cam-1']);
  expect(await names('state=never')).toEqual(['pump']);
  expect(await names('site=*.north.example.com&label=floor=1')).toEqual(['lift-1']);
  expect(await names('label=kind')).toEqual(['lift-1']);
  expect(await names('version=agent/1.2')).toEqual(['cam-1']);
  // Pages keep the filters.
  const { body } = await server.call('GET', '/devices?site=north.example.com&limit=1');
  const next = new URL(String(body.next_page_uri)).search;
  expect(await names(next.slice(1))).toHaveLength(1);
  const refused = await server.call('GET', '/devices?state=asleep');
  expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_215']);
});

it('lists of endpoints are searched, and limited by protocol and type', async () => {
  const { server } = await start();
  const ids = async (query: string) => {
    const { body } = await server.call('GET', `/endpoints?${query}`);
    return (body.endpoints as { id: string }[]).map(({ id }) => id).sort();
  };
  const [web, tcp] = endpoints.map(({ id }) => id);
  expect(await ids('')).toEqual([web, tcp].sort());
  expect(await ids('search=lift')).toEqual([tcp]);
  expect(await ids('protocol=tcp')).toEqual([tcp]);
  expect(await ids('type=cloud')).toEqual([]);
});

const LISTS = Object.values<ReadableResource>(RESOURCES).filter(({ filters }) => filters !== undefined);

it('lists are searched, and sorted page by page as at once', async () => {
  const { server } = await start();
  sessions.push(SESSION, { ...SESSION, id: `${SESSION.id.slice(0, -1)}f`, agentVersion: '1.10.0' });
  for (const text of ['text', 'Another']) await fill(server.store, text);
  expect(LISTS.length).toBeGreaterThan(12);
  for (const { path, listKey, filters } of LISTS) {
    const page = async (query: string) => {
      const { status, body } = await server.call('GET', query === '' ? path : `${path}?${query}`);
      expect([status, body.msg], path + query).toEqual([200, undefined]);
      const next = body.next_page_uri === null ? null : new URL(String(body.next_page_uri)).search.slice(1);
      return { ids: (body[listKey] as { id: string }[]).map(({ id }) => id), next };
    };
    const all = (await page('')).ids;
    expect(all.length, path).toBeGreaterThan(1);
    expect((await page('search=no%20such%20text')).ids, path).toEqual([]);
    expect((await page(`search=${all[0]?.toUpperCase()}`)).ids, path).toContain(all[0]);
    for (const sort of sortsOf(filters)) {
      const sorted = (await page(`sort=${sort}`)).ids;
      expect(sorted.toSorted(), path + sort).toEqual(all.toSorted());
      const paged: string[] = [];
      for (let query: string | null = `sort=${sort}&limit=1`; query !== null; ) {
        const found: Awaited<ReturnType<typeof page>> = await page(query);
        paged.push(...found.ids);
        query = found.next;
      }
      expect(paged, path + sort).toEqual(sorted);
    }
  }
});

it('lists sort versions by their numbers, states by how much they matter, and what was never seen first', async () => {
  const { server } = await start();
  const { devices, database } = server.store;
  const sample = devices.get((await fillStore(server.store, 'text')).devices) as DeviceRow;
  await database.write(() => {
    devices.delete(sample.id);
    const add = (name: string, agent_version: string | null, status: DeviceRow['status'], seen: string | null) =>
      devices.insert({
        ...sample,
        ...{ id: server.store.ids.next('dev'), name, agent_version, status, last_seen_at: seen },
        ...{ install_hash: randomBytes(32), credential_id: null, site: 'sorted.example.com' },
      });
    add('b', 'agent/1.10.0', 'enrolled', '2026-01-02T00:00:00Z');
    add('a', 'agent/1.9.0', 'pending', null);
    add('c', null, 'enrolled', null);
  });
  const names = async (sort: string) => {
    const { body } = await server.call('GET', `/devices?site=sorted.example.com&sort=${sort}`);
    return (body.devices as { name: string }[]).map(({ name }) => name).join('');
  };
  expect(await names('name')).toBe('abc');
  expect(await names('-name')).toBe('cba');
  expect(await names('-agent_version')).toBe('bac');
  expect(await names('state')).toBe('bca');
  expect(await names('-last_seen_at')).toBe('bca');
});

it('lists of agents and endpoints find the device, and are limited by its site and label', async () => {
  const { server } = await start();
  const { devices, credentials, database } = server.store;
  const sample = devices.get((await fillStore(server.store, 'text')).devices) as DeviceRow;
  const credential = credentials.page(null, 1)[0]?.id ?? null;
  await database.write(() =>
    devices.update({
      ...sample,
      name: 'cam-7',
      site: 'north.example.com',
      credential_id: credential,
      labels: { floor: '2' },
    }),
  );
  sessions.push({ ...SESSION, credentialId: credential }, { ...SESSION, id: `${SESSION.id.slice(0, -1)}f` });
  const count = async (path: string, key: string) => {
    const { status, body } = await server.call('GET', path);
    return [status, (body[key] as object[]).length];
  };
  for (const query of ['search=CAM-7', 'site=*.north.example.com', 'label=floor', 'label=floor=2', 'search=north'])
    expect(await count(`/tunnel_sessions?${query}`, 'tunnel_sessions'), query).toEqual([200, 1]);
  for (const query of ['label=floor=3', 'site=south.example.com', 'version=9'])
    expect(await count(`/tunnel_sessions?${query}`, 'tunnel_sessions'), query).toEqual([200, 0]);
  expect(await count('/tunnel_sessions?version=1.7', 'tunnel_sessions')).toEqual([200, 2]);
  expect(await count('/endpoints?site=north.example.com', 'endpoints')).toEqual([200, 0]);
  expect(await count('/credentials?search=cam-7', 'credentials')).toEqual([200, 1]);
});

it('a search of the audit log reads a part of it at a time, and says where to go on', async () => {
  const { server } = await start();
  const { auditLog, database, ids } = server.store;
  await database.write(() => {
    for (let number = 0; number < 5_200; number++)
      auditLog.insert({
        ...{ id: ids.next('evt'), created_at: '2026-01-01T00:00:00Z', type: 'device_updated.v0', object_id: 'dev_1' },
        ...{
          by: 'ak_1',
          from_address: null,
          part_of: null,
          before: null,
          after: { name: number === 3 ? 'needle' : 'hay' },
        },
      });
  });
  const first = await server.call('GET', '/audit_events?search=needle');
  expect(first.body.audit_events).toEqual([]);
  const next = new URL(String(first.body.next_page_uri));
  const second = await server.call('GET', next.pathname + next.search);
  expect(second.body).toMatchObject({ audit_events: [{ after: { name: 'needle' } }], next_page_uri: null });
  const client = new ManagementClient({ baseUrl: server.url, apiKey: server.apiKey });
  const all = [];
  for await (const event of client.auditEvents.all({ filters: { search: 'needle' } })) all.push(event);
  expect(all).toHaveLength(1);
  const lines = [...auditLog.pages({ search: 'needle' })].flat();
  expect(lines).toHaveLength(1);
});

/** Adds at least one item to each list that fills the store. */
async function fill(store: Store, text: string): Promise<void> {
  const sample = store.devices.page(null, 1)[0];
  if (sample === undefined) await fillStore(store, text);
  await store.database.write(() => {
    const now = store.now();
    const row = (prefix: string) => ({ id: store.ids.next(prefix), created_at: now });
    const copy = <Row extends object>(rows: Row[], changes: Partial<Row>) => ({ ...(rows[0] as Row), ...changes });
    const { devices, enrolmentKeys, reservedDomains, shareLinks, tlsCertificates, people, credentials } = store;
    devices.insert(
      copy(devices.page(null, 1), { ...row('dev'), name: text.toLowerCase(), install_hash: randomBytes(32) }),
    );
    enrolmentKeys.insert(copy(enrolmentKeys.page(null, 1), { ...row('ek'), site: `${text}.example.com` }));
    reservedDomains.insert(copy(reservedDomains.page(null, 1), { ...row('rd'), domain: `${text}.example.com` }));
    shareLinks.insert(copy(shareLinks.page(null, 1), { ...row('sl'), uses: 7 }));
    tlsCertificates.insert(copy(tlsCertificates.page(null, 1), { ...row('cert'), description: null }));
    people.insert(copy(people.page(null, 1), { ...row('prs'), email: `${text}@example.com`, name: text }));
    credentials.insert(copy(credentials.page(null, 1), { ...row('cr'), description: text }));
    store.bulkActions.insert(copy(store.bulkActions.page(null, 1), { ...row('blk'), action: 'revoke' }));
    const user = row('au');
    store.applicationUsers.insert({
      ...{ ...user, issuer: 'https://id.example.com', subject: user.id, email: `${text}@example.com` },
      ...{ name: text, last_login: now },
    });
    store.applicationSessions.insert({
      ...{
        ...row('as'),
        expires_at: '2999-01-01T00:00:00Z',
        user_id: user.id,
        public_url: `https://${text}.example.com`,
      },
      ...{ host: null, endpoint_id: ENDPOINT.id, payer: 'p', ip_address: '203.0.113.1', user_agent: text },
    });
    store.conditionHistory.insert({
      ...{ ...row('cnd'), condition: 'device_offline', subject: sample?.id ?? '', name: text, site: null, labels: {} },
      ...{ network: null, severity: 'warning', message: text, remedy: '', began_at: now, ended_at: null },
      ...{ comes_and_goes: false, settled: true, acknowledged_at: null, acknowledged_by: null, silenced_until: null },
      ...{ silenced_by: null, told: [], withheld: [] },
    });
    const change = {
      type: 'domain_created.v0',
      object_id: 'rd_1',
      by: 'ak_1',
      from_address: null,
      part_of: null,
      before: null,
    };
    store.auditLog.insert({ ...row('evt'), ...change, after: { domain: text } });
  });
}
