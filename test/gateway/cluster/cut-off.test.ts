import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import ngrok from '@ngrok/ngrok';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { PERIODS } from '../../../src/gateway/cluster/nodes.ts';
import { RelayTickets } from '../../../src/gateway/edge/relays/relay-tickets.ts';
import type { Gateway } from '../../../src/gateway/gateway.ts';
import { issueApiKey, issueCredential } from '../../../src/gateway/store/tokens.ts';
import { startClusterNode } from '../../support/cluster-node.ts';
import { domainRow } from '../../support/domain-row.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { getPublic } from '../../support/gateway.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const only = unless(NO_POSTGRES);
/** So that a gateway looks for another way soon, and others take it for lost late. */
const QUICK = { ...PERIODS, renewMs: 200, silentMs: 2_500 };
/** Far less than the period after which others take it for lost. */
const SOON = { withinMs: 8_000, everyMs: 50 };
let server: PostgresServer;
let databases = 0;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());

/** A gateway that can be cut off from PostgreSQL alone, which serves the management API, and another one. */
async function cluster() {
  databases += 1;
  const name = `d${databases}`;
  await server.query(`CREATE DATABASE ${name}`);
  const urlAt = (address: string) => server.url(address).replace(/postgres$/, name);
  const [way, otherWay] = [await FlakyProxy.start(server.address), await FlakyProxy.start(server.address)];
  onTestFinished(() => Promise.all([way.close(), otherWay.close()]).then(() => {}));
  const { log, lines } = recordingLog();
  const options = { dataDir: temporaryFolder(), periods: QUICK, log };
  const start = () => startClusterNode(urlAt(way.address), '127.0.0.1', options);
  const cut = await start();
  const other = await startClusterNode(urlAt(otherWay.address), '127.0.0.1', { periods: QUICK });
  // Each gateway has learnt of the other one.
  await until(() => existsSync(join(options.dataDir, 'gateway', 'other-gateways.json')), 'both', SOON);
  return { name, way, otherWay, cut, other, start, lines };
}

const newKey = async ({ store }: Gateway) => store.database.write(() => issueApiKey(store, {}));

const revoke = ({ store }: Gateway, { row }: Awaited<ReturnType<typeof newKey>>) =>
  store.database.write(() => void store.apiKeys.delete(row.id));

function ask(gateway: Gateway, { token }: { token: string }, path = '/api_keys') {
  const headers = { authorization: `Bearer ${token}`, 'service-version': '2' };
  return getPublic(gateway, `https://api.localhost:${gateway.httpsPort}${path}`, headers);
}

it('a gateway that is cut off from PostgreSQL alone works through another one, and directly again', only, async () => {
  const { way, cut, other, lines } = await cluster();
  const [key, revoked] = [await newKey(other), await newKey(other)];
  await until(async () => (await ask(cut, revoked)).status === 200, 'the key', SOON);
  await way.refuse();

  await revoke(other, revoked);
  await other.store.database.write(() =>
    other.store.reservedDomains.insert(domainRow(other.store, 'new.example.com', null)),
  );
  await until(async () => (await ask(cut, revoked)).status === 403, 'the revocation', SOON);
  const domains = await ask(cut, key, '/reserved_domains');
  expect([domains.status, domains.headers.age, JSON.parse(domains.body).reserved_domains.length]).toEqual([
    ...[200, undefined, 1],
  ]);
  const { token } = await cut.store.database.write(() => issueCredential(cut.store, { acl: [] }));
  const session = await new ngrok.SessionBuilder()
    .authtoken(token)
    .serverAddr(cut.sessionAddress)
    .caCert(Buffer.from(cut.sessionCa))
    .connect();
  onTestFinished(() => session.close().catch(() => {}));
  await session.httpEndpoint().domain('a.localhost').listen();
  const condition = async () => {
    const text = (await ask(cut, key, '/metrics')).body;
    return /condition="shared_database_detour"\} (\d)/.exec(text)?.[1];
  };
  expect(await condition()).toBe('1');

  await way.listen();
  await until(() => way.open === 1, 'the direct way', SOON);
  await until(async () => (await condition()) === '0', 'the condition', SOON);
  const says = (message: string) => lines.some(({ msg }) => msg === message);
  expect(says('shared database reached through another gateway')).toBe(true);
  await until(() => says('shared database reached directly again'), 'the message', SOON);
});

it('a gateway that starts without PostgreSQL learns first what was revoked, from another one', only, async () => {
  const { way, cut, other, start } = await cluster();
  const revoked = await newKey(other);
  await until(async () => (await ask(cut, revoked)).status === 200, 'the key', SOON);
  await cut.close();
  await way.refuse();
  await revoke(other, revoked);
  expect((await ask(await start(), revoked)).status).toBe(403);
});

it('a gateway that nobody gives a way to PostgreSQL says how old its answers are', only, async () => {
  const { way, cut, other } = await cluster();
  const key = await newKey(other);
  await until(async () => (await ask(cut, key)).status === 200, 'the key', SOON);
  await other.close();
  await way.refuse();
  await until(async () => Number((await ask(cut, key)).headers.age) >= 2, 'the age', SOON);
});

/** What a message of PostgreSQL's protocol that asks for TLS is answered: `N`, for no. */
const SSL_REQUEST = Buffer.from('0000000804d2162f', 'hex');

it('only a gateway of the cluster gets a way to PostgreSQL', only, async () => {
  const { name, other, otherWay } = await cluster();
  const nodes = await server.query<{ id: string; address: string }>('SELECT id, address FROM device_agent.nodes', name);
  const id = nodes.find(({ address }) => address.endsWith(`:${other.httpsPort}`))?.id ?? '';
  const dialled = otherWay.accepted;
  /** @param proves what is sent to prove that it is a gateway; null: nothing */
  const answerTo = async (key: string, proves: ((tickets: RelayTickets, link: TLSSocket) => Buffer) | null) => {
    const link = connect(other.httpsPort, '127.0.0.1');
    const tickets = new RelayTickets(() => [key], 'stranger', Date.now);
    const ends = { clientIp: '127.0.0.1', clientPort: 1, serverIp: '127.0.0.1', serverPort: 2 };
    link.write(tickets.issue(ends, id, { port: 'database', isLast: true }));
    const secured = connectTls({ socket: link, servername: 'api.localhost', rejectUnauthorized: false });
    const pieces: Buffer[] = [];
    secured.on('error', () => {}).on('data', (piece: Buffer) => void pieces.push(piece));
    secured.on('secureConnect', () => {
      if (proves) secured.write(proves(tickets, secured));
      secured.write(SSL_REQUEST);
    });
    const answer = () => Buffer.concat(pieces);
    await until(() => secured.closed || answer().length > RelayTickets.PROOF_BYTES, 'an answer or the end', SOON);
    secured.destroy();
    return answer().subarray(RelayTickets.PROOF_BYTES).toString();
  };
  const key = other.store.box.keyFor(RelayTickets.PURPOSE);
  expect(await answerTo('another key', null)).toBe('');
  // Who has seen the header of a gateway, and is faster.
  expect(await answerTo(key, null)).toBe('');
  expect(await answerTo(key, () => randomBytes(RelayTickets.PROOF_BYTES))).toBe('');
  expect(await answerTo(key, (tickets, link) => tickets.proofOf('server', link))).toBe('');
  expect(otherWay.accepted).toBe(dialled);
  expect(await answerTo(key, (tickets, link) => tickets.proofOf('client', link))).toBe('N');
});
