import { EventEmitter } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { noteDeniedConnection, noteDeniedRequest } from '../../../src/gateway/edge/connections/denials.ts';
import {
  ActivityLog,
  noteDashboardRefusal,
  noteSessions,
  noteSignIn,
} from '../../../src/gateway/events/activity-log.ts';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

let dataDir: string;
let store: Store;
let activity: ActivityLog;
beforeEach(() => {
  dataDir = temporaryFolder();
  store = openGatewayStore({ dataDir, encryptionKey: null });
  activity = new ActivityLog(store, silentLog);
});
afterEach(() => store.database.close());

/** Subscribes a destination that nothing is sent to. */
async function subscribe(id: string, ...sources: string[]): Promise<void> {
  const row = { id, created_at: store.now(), description: null, metadata: null };
  const { database, eventDestinations, eventDeliveries, eventSubscriptions } = store;
  await database.write(() => {
    const destination = { ...row, ...eventDestinations.sealed({ kind: 'file', name: id }, id) };
    eventDestinations.insert(destination);
    eventDeliveries.begin(destination);
    eventSubscriptions.insert({ ...row, id: store.ids.next('esb'), sources, destination_ids: [id] });
  });
}

const AGENT = { program: 'a/1', os: 'linux', metadata: '' };
const owner = (id: string): { id: string; ownerId: string | null } => ({ id, ownerId: null });
type Owner = ReturnType<typeof owner>;

const CLOSE = '{"on_tcp_connect":[{"actions":[{"type":"deny"}]}]}';

/** Waits until a client's connection was reset. */
async function refusedBy(client: Socket): Promise<void> {
  await new Promise((resolve) => client.on('error', () => {}).once('close', resolve));
}

const DENY = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}';

const note = (count: number) => {
  for (let number = 0; number < count; number++) activity.note('endpoint_start.v0', () => ({ number }));
};
const stored = () => store.activityEvents.after('', null, 20_000);
const delivery = (id: string) => {
  const row = store.eventDeliveries.get(id);
  if (row === null) throw new Error(`no destination ${id}`);
  return row;
};

it('writes nothing that nobody has subscribed to', async () => {
  await subscribe('ed_1', 'agent_session_start.v0', 'ip_policy_created.v0');
  const { commits } = store.database;
  activity.note('endpoint_start.v0', () => {
    throw new Error('nobody wants to know');
  });
  await activity.stop();
  expect([store.database.commits, stored()]).toEqual([commits, []]);
});

it('holds a thousand events, writes them together, and forgets those that were delivered', async () => {
  await subscribe('ed_1', 'endpoint_start.v0');
  const { commits } = store.database;
  note(1_500);
  await activity.stop();
  expect(store.database.commits).toBe(commits + 5);
  expect(stored()).toHaveLength(1_000);
  const [, second] = store.eventDeliveries.waiting(delivery('ed_1'), 2);
  await store.database.write(() => store.eventDeliveries.acknowledged('ed_1', second?.id ?? ''));
  note(1);
  await activity.stop();
  const numbers = stored().map(({ after }) => after?.number);
  expect([numbers.slice(0, 2), numbers.at(-1)]).toEqual([[2, 3], 0]);
});

it('cuts long texts of others after a whole character', async () => {
  await subscribe('ed_1', 'agent_session_start.v0');
  activity.note('agent_session_start.v0', () => ({ metadata: `${'x'.repeat(999)}😀 and more` }));
  await activity.stop();
  expect(stored().map(({ after }) => after?.metadata)).toEqual(['x'.repeat(999)]);
});

it('what one tenant brings about makes no sign-in, denial or event of another tenant vanish', async () => {
  await subscribe('ed_1', '*');
  const failed = (address: string, error: ApiError) => noteDashboardRefusal(activity, address, error);
  const begin = (credential: string, number: number) =>
    activity.note('endpoint_start.v0', () => ({ credential, number }), credential);
  for (let number = 0; number < 3_000; number++) begin(`cr_busy_${number % 3}`, number);
  for (let number = 0; number < 8; number++) failed('203.0.113.7', new ApiError(401, 'ERR_NGROK_206', 'wrong'));
  noteSignIn(activity, { host: 'cam', issuer: 'i', clientIp: '203.0.113.7', subject: '', error: 'ERR_NGROK_3112' });
  for (let number = 0; number < 5; number++) begin('cr_other', number);
  await activity.stop();
  const times = (type: string, credential?: string) =>
    stored().filter((event) => event.type === type && event.after?.credential === credential).length;
  expect(times('dashboard_sign_in_failed.v0')).toBe(8);
  expect(times('sign_in_failed.v0')).toBe(1);
  expect(times('endpoint_start.v0', 'cr_other')).toBe(5);
  // What was lost is counted like what is left out.
  const busy = stored().filter(({ after }) => after?.credential === 'cr_busy_0');
  expect(busy.map(({ after }) => after?.number)).toEqual(busy.map((_, at) => at * 3));
});

it('counts the events of a full queue as left out', async () => {
  await subscribe('ed_1', '*');
  // One fewer than the limit of each, so that the next one is noted.
  for (let number = 0; number < 1_998; number++) activity.note('endpoint_stop.v0', () => ({}), `cr_${number % 2}`);
  for (let number = 0; number < 10; number++) activity.note('endpoint_start.v0', () => ({}), 'cr_2');
  await activity.stop();
  activity.note('endpoint_stop.v0', () => ({}), 'cr_0');
  activity.note('endpoint_stop.v0', () => ({}), 'cr_1');
  await activity.stop();
  const left = stored()
    .filter(({ type }) => type === 'endpoint_stop.v0')
    .map(({ after }) => Number(after?.omitted));
  expect(left.reduce((sum, omitted) => sum + omitted, left.length)).toBe(2_000);
});

it('keeps ten thousand of a kind for a destination that is away, and counts the others', async () => {
  await subscribe('ed_1', '*');
  await subscribe('ed_2', 'domain_created.v0');
  const event = { created_at: '', type: 'endpoint_stop.v0', object: {} };
  const other = { ...event, type: 'dashboard_sign_in_failed.v0' };
  const events = [other, ...Array.from({ length: 10_500 }, () => event)];
  await store.database.write(() => store.eventDeliveries.addActivity(events));
  expect(stored()).toHaveLength(1 + 10_000);
  expect(stored()[0]?.type).toBe('dashboard_sign_in_failed.v0');
  expect([delivery('ed_1').skipped, delivery('ed_2').skipped]).toEqual([500, 0]);
});

it('an event is newer than one that was delivered and forgotten, whatever the clock says after a restart', async () => {
  await subscribe('ed_1', '*');
  note(1);
  await activity.stop();
  const [event] = store.eventDeliveries.waiting(delivery('ed_1'), 1);
  await store.database.write(() => {
    store.eventDeliveries.acknowledged('ed_1', event?.id ?? '');
    store.activityEvents.forgetBefore('~');
  });
  store.database.close();
  store = openStore(join(dataDir, 'gateway', 'gateway.db'), store.box, () => Date.now() - 3_600_000);
  const [id = ''] = store.auditLog.nextIds(1);
  expect(id > (event?.id ?? '~')).toBe(true);
});

it('denied requests at one endpoint, and failed sign-ins of one client, leave room for those of others', async () => {
  await subscribe('ed_1', '*');
  const counters = new EdgeCounters();
  const failed = (address: string, error: ApiError) => noteDashboardRefusal(activity, address, error);
  const deny = (url: string) => {
    const req = { method: 'GET', url: '/', headers: {}, socket: { remoteAddress: '::1' } };
    noteDeniedRequest({ counters, activity }, { url }, req, 403);
    noteDeniedConnection({ activity }, { url }, { remoteAddress: '::1' });
  };
  const wrong = new ApiError(401, 'ERR_NGROK_206', 'wrong');
  for (let number = 0; number < 1_000; number++) {
    deny('https://busy.localhost');
    failed('203.0.113.7', wrong);
  }
  deny('https://other.localhost');
  failed('203.0.113.8', wrong);
  await activity.stop();
  for (const [type, member, value] of [
    ['request_denied.v0', 'endpoint', 'https://other.localhost'],
    ['connection_denied.v0', 'endpoint', 'https://other.localhost'],
    ['dashboard_sign_in_failed.v0', 'client_ip', '203.0.113.8'],
  ] as const) {
    const others = stored().filter((event) => event.type === type && event.after?.[member] === value);
    expect(others.map(({ after }) => Number(after?.omitted) > 900)).toEqual([true]);
  }
});

it('refused requests are events, ten a second, without their queries', async () => {
  await subscribe('ed_1', 'request_denied.v0');
  const counters = new EdgeCounters();
  const socket = { remoteAddress: '::ffff:203.0.113.7' };
  const req = { method: 'GET', url: `/${'a'.repeat(2_000)}?token=hidden`, headers: { host: 'cam.localhost' }, socket };
  for (let request = 0; request < 50; request++)
    noteDeniedRequest({ counters, activity }, { url: 'https://cam.localhost' }, req, 403);
  await activity.stop();
  expect(counters.refusedByPolicy).toBe(50);
  expect(stored().length).toBeLessThan(15);
  const object = stored()[0]?.after;
  expect(object).toMatchObject({
    endpoint: 'https://cam.localhost',
    client_ip: '203.0.113.7',
    status: 403,
    omitted: 0,
  });
  expect(object?.path).toBe(`/${'a'.repeat(999)}`);
});

it('sessions of one authtoken, begun again and again, leave room for the events of others', async () => {
  await subscribe('ed_1', 'agent_session_start.v0');
  const sessions = new EventEmitter<Record<'added' | 'removed', [session: Parameters<typeof begin>[0]]>>();
  const begin = (session: { id: string; address: string; startedAt: Date; agent: typeof AGENT; credential: Owner }) =>
    sessions.emit('added', session);
  noteSessions(activity, sessions);
  const of = (id: string) => ({
    id: 'ts_1',
    address: '::1',
    startedAt: new Date(),
    agent: AGENT,
    credential: owner(id),
  });
  for (let written = 0; written < 5; written++) {
    for (let session = 0; session < 900; session++) begin(of('cr_busy'));
    await activity.stop();
  }
  begin(of('cr_other'));
  await activity.stop();
  const owners = stored().map(({ after }) => after?.credential_id);
  expect(owners.filter((id) => id === 'cr_busy').length).toBeLessThan(1_100);
  expect(stored().at(-1)?.after).toMatchObject({ credential_id: 'cr_other', omitted: 0 });
});

it('sessions, endpoints, certificates, refused requests and connections are events', async () => {
  const gateway = await startTestGateway({ tcpPorts: await freePorts(1) });
  try {
    const api = await GatewayClient.of(gateway);
    const created = await api.call('POST', '/event_destinations', { target: { file: { name: 'audit' } } });
    const sources = [
      'agent_session_start',
      'agent_session_stop',
      'endpoint_start',
      'endpoint_stop',
      'certificate_issued',
      'request_denied',
      'connection_denied',
    ];
    await api.call('POST', '/event_subscriptions', {
      sources: sources.map((type) => ({ type: `${type}.v0` })),
      destination_ids: [created.body.id],
    });
    const session = await agentSession(gateway).connect();
    const listener = await session.httpEndpoint().domain('cam.localhost').trafficPolicy(DENY).listen(false);
    await getPublic(gateway, `${String(listener.url())}/secret?token=hidden`);
    await listener.close();
    const closed = await session.tcpEndpoint().trafficPolicy(CLOSE).listen(false);
    const hidden = await session.tlsEndpoint().domain('tls.localhost').trafficPolicy(CLOSE).listen(false);
    const urls = [closed, hidden].map((each) => String(each.url()));
    await refusedBy(connect(Number(new URL(urls[0] ?? '').port), '127.0.0.1'));
    await refusedBy(connectTls(gateway.httpsPort, '127.0.0.1', { servername: 'tls.localhost' }));
    for (const each of [closed, hidden]) await each.close();
    // The SDK takes its time to close a session.
    await api.call('DELETE', `/credentials/cr_${gateway.authtoken.split('_')[0]}`);
    const policy = { authority: 'letsencrypt', private_key_type: 'ecdsa' };
    await api.call('POST', '/reserved_domains', { domain: 'a.example.com', certificate_management_policy: policy });
    const file = join(gateway.dataDir, 'gateway', 'events', 'audit.jsonl');
    const lines = () =>
      (existsSync(file) ? readFileSync(file, 'utf8') : '')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line) as { event_type: string; object: Record<string, unknown> });
    // Three endpoints come and go, and two connections are denied.
    await until(() => lines().length === sources.length + 5, 'events');
    const connections = lines().filter(({ event_type }) => event_type === 'connection_denied.v0');
    expect(connections.map(({ object }) => object)).toEqual(
      urls.map((endpoint) => ({ endpoint, client_ip: '127.0.0.1', omitted: 0 })),
    );
    const of = (type: string) => lines().find(({ event_type }) => event_type === `${type}.v0`)?.object;
    const { id, credential_id } = of('agent_session_start') ?? {};
    expect(of('agent_session_start')).toMatchObject({ agent_ip: '127.0.0.1', started_at: expect.any(String) });
    expect(of('agent_session_stop')).toMatchObject({ id, stopped_at: expect.any(String) });
    const endpoint = { url: expect.stringContaining('https://cam.localhost'), session_id: id, credential_id };
    expect(of('endpoint_start')).toMatchObject(endpoint);
    expect(of('endpoint_stop')).toMatchObject({ ...endpoint, id: of('endpoint_start')?.id });
    const denied = { endpoint: endpoint.url, method: 'GET', path: '/secret', client_ip: '127.0.0.1', status: 403 };
    expect(of('request_denied')).toMatchObject(denied);
    expect(of('certificate_issued')).toMatchObject({ domain: 'a.example.com', renewal: false });
  } finally {
    await gateway.close();
  }
});
