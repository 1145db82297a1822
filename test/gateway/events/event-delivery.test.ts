import { readFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EventDelivery } from '../../../src/gateway/events/event-delivery.ts';
import { openStore } from '../../../src/gateway/store/store.ts';
import { cidrList } from '../../../src/lib/network/ip-address.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { publicAddress, publicRequest } from '../../../src/traffic-policy/public-request.ts';
import { EventReceiver } from '../../support/event-receiver.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { until } from '../../support/until.ts';

const LOOPBACK = cidrList(['127.0.0.0/8']);
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
/** Retries at once. */
const clock = { ...systemClock, random: () => 0 };

let server: ManagementServer;
let receiver: EventReceiver;
let delivery: EventDelivery;
let lines: { level: string; msg: string }[];
let isSender: boolean;

beforeEach(async () => {
  [server, receiver] = [await startManagementServer(), new EventReceiver()];
  await receiver.listen();
  isSender = true;
  delivery = deliver();
});
afterEach(async () => {
  await delivery.stop();
  agent.destroy();
  await receiver.refuse();
  await server.close();
});

/** As the gateway's own, but without TLS. */
const agent = new Agent({ keepAlive: true });

function deliver(): EventDelivery {
  lines = [];
  const log = {
    info: (_fields: object, msg: string) => void lines.push({ level: 'info', msg }),
    warn: (_fields: object, msg: string) => void lines.push({ level: 'warn', msg }),
  } as unknown as ConstructorParameters<typeof EventDelivery>[0]['log'];
  const request: typeof publicRequest = ({ url, ...outbound }, signal) =>
    publicRequest({ ...outbound, url: new URL(url.href.replace('https:', 'http:')) }, signal, LOOPBACK, agent);
  const started = new EventDelivery({
    store: server.store,
    folder: join(server.folder, 'events'),
    request,
    resolve: (host) => publicAddress(host, LOOPBACK),
    isSender: () => isSender,
    clock,
    log,
  });
  started.start();
  return started;
}

async function create(path: string, body: object): Promise<string> {
  const { status, id, body: answer } = await server.call('POST', path, body);
  expect([status, answer.msg]).toEqual([201, undefined]);
  return id;
}

async function subscribe(...types: string[]): Promise<string> {
  const destination = await create('/event_destinations', {
    target: { webhook: { url: receiver.url, signing_secret: SECRET } },
  });
  const sources = types.map((type) => ({ type }));
  await create('/event_subscriptions', { sources, destination_ids: [destination] });
  return destination;
}

const policy = (description: string) => create('/ip_policies', { description });
const described = () =>
  receiver.acknowledged.map(({ body }) => (JSON.parse(body) as { object: { description: string } }).object.description);
const isReceived = (...descriptions: string[]) =>
  until(() => described().length === descriptions.length, 'events').then(() =>
    expect(described()).toEqual(descriptions),
  );

/** All that was sent is recorded as acknowledged. */
const recorded = (destination: string) =>
  until(() => {
    const delivered = server.store.eventDeliveries.get(destination);
    return delivered !== null && server.store.eventDeliveries.waiting(delivered, 1).length === 0;
  }, 'record');

it('sends changes signed, with who has made them and what was before', async () => {
  await subscribe('ip_policy_created.v0', 'ip_policy_updated.v0');
  const id = await policy('first');
  await server.call('PATCH', `/ip_policies/${id}`, { description: 'second' });
  await isReceived('first', 'second');
  expect(receiver.connections).toBe(1);
  const [, updated] = receiver.acknowledged;
  const { verified } = (await import(snippet())) as { verified: (...args: unknown[]) => { event_id: string } };
  expect(verified(updated?.headers, updated?.body, SECRET)).toMatchObject({
    event_id: updated?.id,
    event_type: 'ip_policy_updated.v0',
    event_timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    object: { id, description: 'second' },
    before: { id, description: 'first' },
    by: `ak_${server.apiKey.split('_')[0]}`,
    from_address: expect.stringContaining('127.0.0.1'),
  });
  expect(() => verified(updated?.headers, `${updated?.body} `, SECRET)).toThrow('signature');
});

/** What the documentation shows for receivers, as a module. */
function snippet(): string {
  const [, code = ''] = /```js\n([\s\S]*?)```/.exec(readFileSync('docs/events.md', 'utf8')) ?? [];
  return `data:text/javascript,${encodeURIComponent(code)}`;
}

it('sends nothing while another gateway may have begun to send, although it was not stopped yet', async () => {
  const destination = await subscribe('ip_policy_created.v0');
  await policy('first');
  await isReceived('first');
  await recorded(destination);
  isSender = false;
  await policy('second');
  // As the other gateway does, which has sent it.
  const { database, eventDeliveries, auditLog } = server.store;
  await database.write(() => eventDeliveries.acknowledged(destination, auditLog.latestId()));
  isSender = true;
  await policy('third');
  await isReceived('first', 'third');
});

it('repeats an event with its id until it is acknowledged, in order, and says that the destination fails', async () => {
  const destination = await subscribe('ip_policy_created.v0');
  const refused: string[] = [];
  receiver.react = ({ id }) => (refused.push(id) % 2 === 0 ? 'die' : 503);
  await policy('first');
  await policy('second');
  const state = async () => (await server.call('GET', `/event_destinations/${destination}`)).body.delivery as object;
  await until(async () => 'error' in (await state()) && lines.length > 0, 'failure');
  await until(() => refused.length > 5, 'retries');
  expect(await state()).toMatchObject({
    failing_since: expect.stringMatching(/Z$/),
    waiting_since: expect.stringMatching(/Z$/),
  });
  receiver.react = () => 200;
  await isReceived('first', 'second');
  expect(new Set(refused)).toEqual(new Set([receiver.ids[0]]));
  await until(() => lines.length === 2, 'log');
  expect(lines).toMatchObject([
    { level: 'warn', msg: 'event destination unreachable: its events wait' },
    { level: 'info', msg: 'event destination reachable again' },
  ]);
  await recorded(destination);
  const upToDate = { failing_since: null, error: null, waiting_since: null, skipped: 0 };
  expect(await state()).toEqual({ ...upToDate, delivered_until: expect.stringMatching(/Z$/) });
});

it('sends what a subscription is for since it is, and nothing that was before', async () => {
  const destination = await subscribe('ip_policy_deleted.v0');
  await policy('before');
  await create('/event_subscriptions', { sources: [{ type: 'ip_policy_created.v0' }], destination_ids: [destination] });
  await policy('after');
  await create('/vaults', { name: 'not-wanted' });
  await policy('later');
  await isReceived('after', 'later');
});

it('goes on after a restart, with an event that was not acknowledged', async () => {
  const destination = await subscribe('*');
  await policy('first');
  await recorded(destination);
  await delivery.stop();
  receiver.acknowledged.length = 0;
  await policy('second');
  delivery = deliver();
  await isReceived('second');
});

it('tries a new target at once, and another destination does not wait for one that hangs', async () => {
  const slow = new EventReceiver();
  slow.react = () => 'hang';
  await slow.listen();
  const destination = await subscribe('ip_policy_created.v0');
  await server.call('PATCH', `/event_destinations/${destination}`, { target: { webhook: { url: slow.url } } });
  await subscribe('ip_policy_created.v0');
  await policy('first');
  await isReceived('first');
  await server.call('PATCH', `/event_destinations/${destination}`, { target: { webhook: { url: receiver.url } } });
  await isReceived('first', 'first');
  expect(new Set(receiver.ids).size).toBe(1);
  await slow.refuse();
});

it('writes to a file as well', async () => {
  const destination = await create('/event_destinations', { target: { file: { name: 'audit' } } });
  await create('/event_subscriptions', { sources: [{ type: '*' }], destination_ids: [destination] });
  // Control characters of eight bits, and one that turns text around: terminals obey both.
  const id = await policy('\u009b2J\u202efirst');
  await recorded(destination);
  const lines = readFileSync(join(server.folder, 'events', 'audit.jsonl'), 'utf8')
    .trimEnd()
    .split('\n');
  expect(lines.map((line) => (JSON.parse(line) as { object: { id: string } }).object.id)).toEqual([
    expect.stringMatching(/^esb_/),
    id,
  ]);
  expect(lines[1]).toContain('"description":"\\u009b2J\\u202efirst"');
});

it('counts events that have become too old', async () => {
  const destination = await subscribe('ip_policy_created.v0');
  await delivery.stop();
  await policy('old');
  const { auditLog, database } = server.store;
  const [row] = auditLog.page(null, 1);
  const created_at = new Date(Date.now() - 91 * 86_400_000).toISOString();
  await database.write(() => {
    // Rows are deleted from the oldest on.
    for (const { id } of auditLog.page(null, 100)) auditLog.delete(id);
    if (row) auditLog.insert({ ...row, created_at });
  });
  await policy('new');
  delivery = deliver();
  await isReceived('new');
  const { body } = await server.call('GET', `/event_destinations/${destination}`);
  expect(body.delivery).toMatchObject({ skipped: 1 });
});

it('loses no change of a program whose clock is ahead, nor the next one', async () => {
  await subscribe('ip_policy_created.v0');
  const { box, ipPolicies } = server.store;
  const beside = openStore(join(server.folder, 'gateway.db'), box, () => Date.now() + 3_600_000);
  const row = { id: beside.ids.next('ipp'), created_at: '', description: 'ahead', metadata: null };
  await beside.database.write(() => beside.ipPolicies.insert(row), { by: 'gateway', from: null });
  beside.database.close();
  expect(ipPolicies.get(row.id)).not.toBeNull();
  await policy('next');
  await isReceived('ahead', 'next');
});
