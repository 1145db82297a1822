import { readFileSync } from 'node:fs';
import { Agent, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EventDelivery } from '../../../src/gateway/events/event-delivery.ts';
import { ReplicaPast } from '../../../src/gateway/store/shared/replica-past.ts';
import { openStore } from '../../../src/gateway/store/store.ts';
import { cidrList } from '../../../src/lib/network/ip-address.ts';
import { type Clock, systemClock } from '../../../src/lib/time/clock.ts';
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

function deliver(steered: Clock = clock): EventDelivery {
  lines = [];
  const log = {
    info: (_fields: object, msg: string) => void lines.push({ level: 'info', msg }),
    warn: (_fields: object, msg: string) => void lines.push({ level: 'warn', msg }),
  } as unknown as ConstructorParameters<typeof EventDelivery>[0]['log'];
  const request: typeof publicRequest = ({ url, ...outbound }, signal) =>
    publicRequest({ ...outbound, url: new URL(url.href.replace('https:', 'http:')) }, signal, LOOPBACK, agent);
  const started = new EventDelivery(
    { store: server.store, clock: steered, log },
    {
      folder: join(server.folder, 'events'),
      request,
      resolve: (host) => publicAddress(host, LOOPBACK),
      isSender: () => isSender,
    },
  );
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

it('sends nothing again that was acknowledged while that could not be recorded, also after it was stopped', async () => {
  await subscribe('ip_policy_created.v0');
  const { database } = server.store;
  const write = database.write.bind(database);
  let isAway = false;
  let rejected = 0;
  database.write = (work, caller) => {
    if (!isAway) return write(work, caller);
    rejected += 1;
    return Promise.reject(new Error('away'));
  };
  receiver.react = () => {
    isAway = true;
    return 204;
  };
  await policy('first');
  await until(() => rejected > 0, 'the record that fails');
  await delivery.stop();
  receiver.react = () => 204;
  isAway = false;
  delivery.start();
  await policy('second');
  await isReceived('first', 'second');
});

it('finishes what is being sent when it is stopped, and does not send it again', async () => {
  await subscribe('ip_policy_created.v0');
  const held: ServerResponse[] = [];
  receiver.react = () => (res) => void held.push(res);
  await policy('first');
  await until(() => held.length > 0, 'the event');
  const stopped = delivery.stop();
  receiver.react = () => 204;
  held[0]?.writeHead(204).end();
  await stopped;
  delivery.start();
  await policy('second');
  await until(() => described().at(-1) === 'second', 'the second one');
  expect(held).toHaveLength(1);
  expect(described().filter((each) => each === 'first').length).toBeLessThan(2);
});

it('an event that was sent and lost hides none of those that came instead, whose ids are smaller', async () => {
  const destination = await subscribe('ip_policy_created.v0');
  await policy('first');
  await isReceived('first');
  await recorded(destination);
  const { database, auditLog, eventDeliveries } = server.store;
  const kept = auditLog.latestId();
  const past = new ReplicaPast(database.replicaParts().engine);
  past.lose({ cluster: '', version: 2, batch: 'lost' }, { common: 1, forgotten: 0, event: kept });
  await database.write(() => eventDeliveries.acknowledged(destination, 'evt_zzzzzzzzzzzzzzzzzzzzzzzzzzz'));
  expect(eventDeliveries.get(destination)?.delivered).toBe(kept);
  await policy('second');
  await isReceived('first', 'second');
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
  const upToDate = { failing_since: null, error: null, waiting_since: null, skipped: 0, refused: 0 };
  expect(await state()).toEqual({ ...upToDate, delivered_until: expect.stringMatching(/Z$/) });
});

const deliveryOf = async (destination: string) =>
  (await server.call('GET', `/event_destinations/${destination}`)).body.delivery as Record<string, unknown>;

it.each<[string, (res: ServerResponse) => void]>([
  ['is longer than anybody reads', (res) => void res.end('x'.repeat(200_000))],
  ['never ends', (res) => void res.writeHead(202).write('started')],
  ['is cut off', (res) => void res.writeHead(200, { 'content-length': 100 }).write('half', () => res.destroy())],
  ['is no HTTP', (res) => void res.socket?.end('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk')],
  ['is not what its headers say', (res) => void res.writeHead(200, { 'content-encoding': 'gzip' }).end('no gzip')],
])('takes a status from 200 to 299 as the acknowledgement when the body of the response %s', async (_, answer) => {
  const destination = await subscribe('ip_policy_created.v0');
  receiver.react = () => answer;
  await policy('first');
  await policy('second');
  await isReceived('first', 'second');
  await recorded(destination);
  expect(await deliveryOf(destination)).toMatchObject({ failing_since: null, error: null });
});

it('waits as long as Retry-After says, an hour at most', async () => {
  const waited: number[] = [];
  const times = ['30', new Date(Date.now() + 86_400_000).toUTCString(), '0', 'soon'];
  await delivery.stop();
  delivery = deliver({ ...clock, sleep: async (ms) => void waited.push(ms) });
  await subscribe('ip_policy_created.v0');
  receiver.react = () => {
    const time = times.shift();
    return time === undefined ? 204 : (res) => void res.writeHead(429, { 'retry-after': time }).end();
  };
  await policy('first');
  await isReceived('first');
  expect(waited).toEqual([30_000, 3_600_000, 0, 0]);
});

it('passes over an event that is refused with 4xx, lists it, and sends it again or lets it go', async () => {
  const destination = await subscribe('ip_policy_created.v0');
  const path = `/event_destinations/${destination}`;
  const listed = async () => (await server.call('GET', `${path}/refused_events`)).body.refused_events as object[];
  let tries = 0;
  receiver.react = ({ body }) => {
    if (!body.includes('bad')) return 204;
    tries += 1;
    return 422;
  };
  for (const description of ['first', 'bad 1', 'second', 'bad 2', 'third']) await policy(description);
  await isReceived('first', 'second', 'third');
  await recorded(destination);
  expect(tries).toBe(10);
  expect(await deliveryOf(destination)).toMatchObject({ refused: 2, failing_since: null, waiting_since: null });
  const [later, earlier] = (await listed()) as { id: string; event_id: string }[];
  const entry = { event_type: 'ip_policy_created.v0', reason: 'the server responded with status 422', sending: false };
  expect([earlier, later]).toMatchObject([entry, entry]);
  expect(lines.map(({ msg }) => msg)).toEqual(Array(2).fill('event refused by its destination: passed over'));

  await server.call('POST', `${path}/let_go`, { refused_event_ids: [later?.id] });
  await server.call('POST', `${path}/send_again`, {});
  await until(() => tries === 15, 'more tries');
  await until(() => lines.length === 3, 'refusal');
  expect(await listed()).toMatchObject([{ id: earlier?.id, sending: false }]);

  receiver.react = () => 204;
  await server.call('POST', `${path}/send_again`, {});
  await isReceived('first', 'second', 'third', 'bad 1');
  await until(async () => (await listed()).length === 0, 'empty list');
  expect(receiver.ids.at(-1)).toBe(earlier?.event_id);
});

it('keeps trying the event for a status that asks for another try', async () => {
  await subscribe('ip_policy_created.v0');
  const statuses = [408, 421, 425, 429, 408, 429, 503, 500, 302];
  receiver.react = () => statuses.shift() ?? 204;
  await policy('first');
  await policy('second');
  await isReceived('first', 'second');
});

it('keeps a refused event that is no change, until it is let go', async () => {
  const destination = await subscribe('endpoint_start.v0');
  const { database, eventDeliveries, activityEvents, refusedEvents } = server.store;
  const add = (url: string) =>
    database.write(() =>
      eventDeliveries.addActivity([
        { type: 'endpoint_start.v0', created_at: '2026-11-26T20:00:00Z', object: { description: url } },
      ]),
    );
  receiver.react = () => 400;
  await add('first');
  await until(() => refusedEvents.countOf(destination) === 1, 'refusal');
  receiver.react = () => 204;
  await add('second');
  await isReceived('second');
  await recorded(destination);
  await add('third');
  await isReceived('second', 'third');
  await server.call('POST', `/event_destinations/${destination}/send_again`, {});
  await isReceived('second', 'third', 'first');
  await until(() => refusedEvents.countOf(destination) === 0, 'record');
  await add('fourth');
  expect(activityEvents.count("object LIKE '%first%'", [])).toBe(0);
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
