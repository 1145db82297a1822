import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, request as requestHttp } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { Agent, request } from 'node:https';
import { connect, createServer as createTcpServer, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import ngrok from '@ngrok/ngrok';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { conditionResults } from '../../../src/doctor/gateway/gateway-conditions.ts';
import type { TrafficEvent } from '../../../src/gateway/api/dashboard/dashboard-feed.ts';
import type { DashboardOverview } from '../../../src/gateway/api/dashboard/overview.ts';
import { RelayTickets } from '../../../src/gateway/edge/relays/relay-tickets.ts';
import type { Gateway } from '../../../src/gateway/gateway.ts';
import { rotateKey } from '../../../src/gateway/offline/encryption-keys.ts';
import { retireCa, rotateCa } from '../../../src/gateway/offline/own-cas.ts';
import { requireCaEverywhere } from '../../../src/gateway/offline/shared-database.ts';
import { addPerson } from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { issueDashboardCode } from '../../../src/gateway/store/command-access.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { issueApiKey, issueCredential } from '../../../src/gateway/store/tokens.ts';
import { fetchTrusting } from '../../../src/management/fetch-trusting.ts';
import { loadGatewayServerSettings } from '../../../src/settings/gateway-settings.ts';
import { CLUSTER_KEY, startClusterNode } from '../../support/cluster-node.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { getPublic } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { startHttpService } from '../../support/http-service.ts';
import { exchange } from '../../support/https-exchange.ts';
import { joinedDevices } from '../../support/joined-devices.ts';
import { listening } from '../../support/loopback.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';
import { WebClient } from '../../support/web-client.ts';

const only = unless(NO_POSTGRES);
let server: PostgresServer;
let databases = 0;

beforeAll(async () => {
  if (NO_POSTGRES === null) server = await PostgresServer.start();
});
afterAll(() => server?.end());
beforeEach(async () => {
  databases += 1;
  if (NO_POSTGRES === null) await server.query(`CREATE DATABASE c${databases}`);
});

const databaseUrl = () => server.url().replace(/postgres$/, `c${databases}`);

/** A gateway of the test's cluster. */
const startNode = (host?: string) => startClusterNode(databaseUrl(), host);

async function authtokenAt({ store }: Gateway, owner: string | null = null): Promise<string> {
  return (await store.database.write(() => issueCredential(store, { acl: [], owner_id: owner }))).token;
}

it('gateways that start at once on a new database have one CA', { timeout: 60_000, ...only }, async () => {
  const gateways = await Promise.all([startNode(), startNode(), startNode()]);
  expect(new Set(gateways.map(({ sessionCa }) => sessionCa)).size).toBe(1);
});

it('gateways change their CA together, and one that was away follows', { timeout: 60_000, ...only }, async () => {
  const [one, two] = [await startNode(), await startNode()];
  const dataDir = temporaryFolder();
  const away = await startClusterNode(databaseUrl(), undefined, { dataDir });
  await away.close();
  const shown = async ({ caFile, apiUrl }: Gateway) => {
    const answer = await fetchTrusting({ isUnverified: true })(`${apiUrl}/ca.pem`, {
      ...{ method: 'GET', headers: {}, redirect: 'manual' },
      signal: AbortSignal.timeout(10_000),
    });
    return [await answer.text(), readFileSync(caFile, 'utf8')];
  };
  const first = one.sessionCa;
  // A command on a machine of its own, with the store of one of them.
  const folder = { dataDir: dirname(dirname(one.caFile)) };
  const areReady = () => requireCaEverywhere(settingsOf(one, CLUSTER_KEY), one.store);
  await areReady();
  expect(await rotateCa(folder, one.store, undefined)).toBe(true);
  await expect(areReady()).rejects.toThrow(/^the gateway 127\.0\.0\.1:\d+ does not have the next CA yet/);
  const next = one.store.database.fact('ca_next_certificate') ?? '';
  for (const gateway of [one, two]) {
    await until(async () => (await shown(gateway)).join() === [first + next, first].join(), 'both CAs');
  }
  const isReady = () =>
    areReady().then(
      () => true,
      () => false,
    );
  await until(isReady, 'the next CA at all gateways', { everyMs: 50 });
  await retireCa(folder, one.store, true);
  for (const gateway of [one, two]) {
    await until(async () => (await shown(gateway)).join() === [next, next].join(), 'the next CA');
  }
  const back = await startClusterNode(databaseUrl(), undefined, { dataDir });
  expect([back.sessionCa, ...(await shown(back))]).toEqual([next, next, next]);
});

/** What a command on the machine of a gateway has. */
function settingsOf({ httpsPort, caFile }: Gateway, key: string) {
  const env = {
    ...{ GATEWAY_DOMAIN: 'localhost', GATEWAY_HTTPS_PORT: String(httpsPort), GATEWAY_DATABASE_URL: databaseUrl() },
    ...{ GATEWAY_ENCRYPTION_KEY: key, GATEWAY_NODE_ADDRESS: `127.0.0.1:${httpsPort}` },
  };
  return loadGatewayServerSettings({ ...env, DATA_DIR: dirname(dirname(caFile)) }, temporaryFolder());
}

/** Two gateways, and an authtoken that both know. @param host of the second one; left out: that of the first one, too */
async function twoNodes(host?: string) {
  const [one, two] = [await startNode(), await startNode(host)];
  return { one, two, authtoken: await authtokenAt(one) };
}

async function sessionAt(gateway: Gateway, authtoken: string): Promise<ngrok.Session> {
  const session = await new ngrok.SessionBuilder()
    .authtoken(authtoken)
    .serverAddr(gateway.sessionAddress)
    .caCert(Buffer.from(gateway.sessionCa))
    .handleDisconnection(() => false)
    .connect();
  onTestFinished(() => session.close().catch(() => {}));
  return session;
}

async function upstream(): Promise<string> {
  const service = await startHttpService(
    (req, res) => void res.end(`${req.headers.host} ${req.headers['x-forwarded-for']}`),
  );
  onTestFinished(() => service.close());
  return service.url;
}

/** It goes on until the listener is closed. */
function forward(listener: ngrok.Listener, to: string): void {
  listener.forward(to).catch(() => {});
}

const statusAt = (gateway: Gateway, url: string) =>
  getPublic(gateway, url).then(
    ({ status }) => status,
    () => null,
  );

/** Management API by any node. */
async function ask(gateway: Gateway, key: string, path: string) {
  const url = `https://api.localhost:${gateway.httpsPort}${path}`;
  const { body } = await getPublic(gateway, url, { authorization: `Bearer ${key}`, 'ngrok-version': '2' });
  return JSON.parse(body);
}

it('clients of any gateway reach what an agent has bound at another one', { timeout: 60_000, ...only }, async () => {
  const { one, two, authtoken } = await twoNodes();
  const session = await sessionAt(two, authtoken);
  const to = await upstream();
  const https = await session.httpEndpoint().domain('a.localhost').listen();
  forward(https, to);
  const http = await session.httpEndpoint().domain('plain.localhost').scheme('HTTP').listen();
  forward(http, to);
  const tcp = await session.tcpEndpoint().listen();
  forward(tcp, new URL(to).host);

  // The other one looks up a name that it does not know; not for long, in case that the database is slow.
  await until(async () => (await statusAt(one, 'https://a.localhost/')) === 200, 'the name', { everyMs: 0 });
  expect((await getPublic(one, 'https://a.localhost/')).body).toBe('a.localhost 127.0.0.1');
  expect(await plainGet(one.httpPort, 'plain.localhost')).toEqual([200, 'plain.localhost 127.0.0.1']);
  expect((await plainGet(one.httpPort, 'a.localhost'))[0]).toBe(302);
  expect((await plainGet(one.httpPort, 'unknown.localhost'))[0]).toBe(404);
  const port = Number(new URL(tcp.url() ?? '').port);
  await until(async () => (await plainGet(port, 'tcp.localhost').catch(() => null))?.[0] === 200, 'tcp', {
    everyMs: 50,
  });
  await https.close();
  await until(async () => (await statusAt(one, 'https://a.localhost/')) === 404, 'it is offline', { everyMs: 50 });
});

async function plainGet(port: number, host: string): Promise<[status: number | undefined, body: string]> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, agent: false, headers: { host } };
    requestHttp(options, async (res) => resolve([res.statusCode, await text(res)]))
      .on('error', reject)
      .end();
  });
}

it('two authtokens do not get one name at two gateways, and an agent gets it back when its gateway dies', {
  timeout: 60_000,
  ...only,
}, async () => {
  const [one, two] = [await startNode(), await startNode()];
  const [first, second] = [await authtokenAt(one), await authtokenAt(one)];
  const to = await upstream();
  await until(() => two.store.credentials.page(null, 9).length === 2, 'the authtokens at the other node');
  const a = await sessionAt(one, first);
  forward(await a.httpEndpoint().domain('a.localhost').listen(), to);
  const b = await sessionAt(two, second);
  await expect(b.httpEndpoint().domain('a.localhost').listen()).rejects.toThrow(/another owner.*ERR_NGROK_334/s);
  await one.close();
  const again = await sessionAt(two, first);
  await until(
    () =>
      again
        .httpEndpoint()
        .domain('a.localhost')
        .listen()
        .then((bound) => forward(bound, to))
        .then(
          () => true,
          () => false,
        ),
    'the name at the other gateway',
    { everyMs: 100 },
  );
  expect(await statusAt(two, 'https://a.localhost/')).toBe(200);
});

it('the management API of any gateway shows everything, and what it revokes ends everywhere', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  // As commands do on the other machine.
  const { token: key } = await two.store.database.write(() => issueApiKey(two.store, {}));
  expect(await ask(two, key, '/endpoints')).toMatchObject({ endpoints: [] });
  const to = await upstream();
  for (const [at, gateway] of [one, two].entries()) {
    const session = await sessionAt(gateway, authtoken);
    forward(await session.httpEndpoint().domain(`${at}.localhost`).listen(), to);
  }
  for (const gateway of [one, two]) {
    const hosts = async () => {
      const { endpoints } = await ask(gateway, key, '/endpoints');
      return endpoints
        .map(({ hostport }: { hostport: string }) => hostport.split(':')[0])
        .sort()
        .join();
    };
    await until(async () => (await hosts().catch(() => '')) === '0.localhost,1.localhost', 'both endpoints', {
      everyMs: 100,
    });
    await until(
      async () => (await ask(gateway, key, '/tunnel_sessions')).tunnel_sessions.length === 2,
      'both sessions',
    );
  }
  // One of them serves the dashboard, and asks the other for its figures.
  for (const at of [0, 1]) await until(async () => (await statusAt(one, `https://${at}.localhost/`)) === 200, 'it');
  const dashboard = await signIn(two, one.store);
  expect(await requestsShown(dashboard, 2)).toEqual([1, 1]);
  const metricsOf = async (query: string) => {
    const url = `https://api.localhost:${two.httpsPort}/metrics?${query}`;
    const { status, body } = await getPublic(two, url, { authorization: `Bearer ${key}` });
    return [status, ...(/^device_agent_gateway_sessions .*|no gateway has the address|unknown/m.exec(body) ?? [])];
  };
  for (const { httpsPort } of [one, two])
    expect(await metricsOf(`gateway=127.0.0.1:${httpsPort}`)).toEqual([200, 'device_agent_gateway_sessions 1']);
  expect(await metricsOf('')).toEqual([200, 'device_agent_gateway_sessions 2']);
  expect(await metricsOf('gateway=127.0.0.1:1')).toEqual([400, 'no gateway has the address']);
  // What is wrong at the other one, too, whichever that is.
  const wrong = async () => (JSON.parse(await text(await dashboard('/overview'))) as DashboardOverview).conditions;
  expect(await wrong()).toEqual([]);
  const dead = await (await sessionAt(one, authtoken)).httpEndpoint().domain('dead.localhost').listen();
  forward(dead, 'http://127.0.0.1:1');
  for (let i = 0; i < 3; i += 1) expect(await statusAt(one, 'https://dead.localhost/')).toBe(502);
  const address = `127.0.0.1:${one.httpsPort}`;
  expect(await wrong()).toMatchObject([{ id: 'upstream', gateways: [address] }]);
  // The doctor says whose they are.
  const env = {
    ...{ GATEWAY_DOMAIN: 'localhost', GATEWAY_HTTPS_PORT: String(one.httpsPort), GATEWAY_DATABASE_URL: databaseUrl() },
    ...{ GATEWAY_ENCRYPTION_KEY: CLUSTER_KEY, GATEWAY_NODE_ADDRESS: address },
  };
  const settings = loadGatewayServerSettings({ ...env, DATA_DIR: dirname(dirname(one.caFile)) }, temporaryFolder());
  expect(await conditionResults(settings, 6)).toMatchObject([
    { detail: expect.stringContaining(`${address}: upstreams refuse connections`) },
  ]);
  const [credential] = (await ask(two, key, '/credentials')).credentials;
  await change(two, key, 'DELETE', `/credentials/${credential.id}`);
  await until(() => [one, two].every(({ endpoints }) => endpoints.list().length === 0), 'all are revoked');
});

type Dashboard = (path: string) => Promise<IncomingMessage>;

/** Signs in to the dashboard of a gateway. @returns what asks it */
async function signIn({ httpsPort, sessionCa: ca }: Gateway, { box }: Store): Promise<Dashboard> {
  const code = issueDashboardCode(box, Date.now());
  const origin = `https://api.localhost:${httpsPort}`;
  const page = { host: `api.localhost:${httpsPort}`, origin, 'content-type': 'application/json' };
  const to = { host: '127.0.0.1', port: httpsPort, servername: 'api.localhost', ca, agent: false };
  const send = async (method: string, path: string, headers: object, body = ''): Promise<IncomingMessage> => {
    const req = request({ ...to, method, path, headers: { ...page, ...headers } });
    const [res] = await once(req.end(body), 'response');
    return res;
  };
  const { headers } = await send('POST', '/dashboard/session', {}, JSON.stringify({ code }));
  const [cookie = ''] = headers['set-cookie'] ?? [];
  return (path) => send('GET', `/dashboard${path}`, { cookie: cookie.split(';')[0] });
}

/** How many requests an open dashboard shows of each endpoint, once it shows so many endpoints. */
async function requestsShown(dashboard: Dashboard, count: number): Promise<number[]> {
  const events = await dashboard('/events');
  const shown = new Map<string, number>();
  let received = '';
  for await (const piece of events.setEncoding('utf8')) {
    received += piece;
    for (const [, data = ''] of received.matchAll(/^event: traffic\ndata: (.*)\n\n/gm))
      for (const [id, [requests]] of Object.entries((JSON.parse(data) as TrafficEvent).endpoints))
        shown.set(id, requests);
    if (shown.size === count) break;
  }
  return [...shown.values()];
}

it('a person loses the dashboard at one gateway when another one has taken the right', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two } = await twoNodes();
  const jo = await two.store.database.write(() => addPerson(two.store, { email: 'jo@example.com', dashboard: true }));
  await until(() => one.store.people.get(jo.id) !== null, 'both know the person');
  const origin = `https://api.localhost:${two.httpsPort}`;
  const ask = async (method: string, path: string, headers: object, body = '') => {
    const to = { host: '127.0.0.1', port: two.httpsPort, servername: 'api.localhost', ca: two.sessionCa, agent: false };
    const page = { host: `api.localhost:${two.httpsPort}`, origin, 'content-type': 'application/json' };
    const [res] = await once(request({ ...to, method, path, headers: { ...page, ...headers } }).end(body), 'response');
    return res as IncomingMessage;
  };
  const code = issueDashboardCode(two.store.box, Date.now(), jo.id);
  const { headers } = await ask('POST', '/dashboard/session', {}, JSON.stringify({ code }));
  const cookie = headers['set-cookie']?.[0]?.split(';')[0];
  const holder = async () => JSON.parse(await text(await ask('GET', '/dashboard/session', { cookie }))).holder;
  expect(await holder()).toBe(jo.id);
  await two.store.database.write(() => two.store.people.update({ ...jo, dashboard: false }));
  await until(async () => (await holder()) === null, 'the session ends');
});

/** Changes something by the management API of any node. */
async function change(gateway: Gateway, key: string, method: string, path: string, body?: object) {
  const headers = { host: 'api.localhost', authorization: `Bearer ${key}`, 'ngrok-version': '2' };
  const type = body && { 'content-type': 'application/json' };
  const to = { host: '127.0.0.1', port: gateway.httpsPort, servername: 'api.localhost', ca: gateway.sessionCa };
  const options = { ...to, path, method, agent: false, headers: { ...headers, ...type } };
  return new Promise<{ id: string }>((resolve, reject) => {
    const req = request(options, async (res) => {
      const answer = await text(res);
      if (Number(res.statusCode) < 300) resolve(answer === '' ? {} : JSON.parse(answer));
      else reject(new Error(answer));
    });
    req.on('error', reject).end(body && JSON.stringify(body));
  });
}

it('a device joins by any gateway at once with a code that was made at another one', {
  timeout: 60_000,
  ...only,
}, async () => {
  const [one, two] = [await startNode(), await startNode()];
  const api = await GatewayClient.of(one);
  for (const name of ['first', 'second', 'third']) {
    // As the command does on the other machine; the first one serves the management API.
    const { secret } = await enrolmentKey(two, { site: '*.site.localhost' });
    const joined = await api.call('POST', '/enrolments', { install_key: installKey(), secret, name });
    expect(joined).toMatchObject({ status: 200, body: { status: 'enrolled', name } });
    const session = await sessionAt(two, String(joined.body.authtoken));
    await session.httpEndpoint().domain(String(joined.body.domain)).listen();
  }
});

it('people of the gateway sign in at any gateway, also with what another one has begun', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const api = await GatewayClient.of(one);
  const { body: person } = await api.call('POST', '/people', { email: 'jo@example.com' });
  const { body: link } = await api.call('POST', `/people/${person.id}/link`);
  const policy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'gateway-sign-in' }] }] });
  const session = await sessionAt(two, authtoken);
  forward(await session.httpEndpoint().domain('door.localhost').trafficPolicy(policy).listen(), await upstream());

  const path = new URL(String(link.url)).pathname;
  const page = ({ httpsPort }: Gateway) => `https://sign-in.localhost:${httpsPort}`;
  await until(async () => (await exchange(page(two) + path)).status === 200, 'the link', { everyMs: 50 });
  const send = (gateway: Gateway, path: string, fields: Record<string, string>) =>
    exchange(page(gateway) + path, {
      method: 'POST',
      headers: { origin: page(gateway), 'content-type': 'application/x-www-form-urlencoded' },
      body: String(new URLSearchParams(fields)),
    });
  const password = 'correct horse battery';
  expect((await send(two, path, { password })).status).toBe(303);

  // The endpoint is at the other one, which has sealed the request, and opens the code.
  const door = `https://door.localhost:${one.httpsPort}/`;
  const isKnown = () => one.store.people.byEmail('jo@example.com')?.password_set_at != null;
  await until(isKnown, 'the password at the first one', { everyMs: 50 });
  const signIn = async () => {
    const begun = await exchange(door);
    const request = new URL(String(begun.headers.location)).searchParams.get('request') ?? '';
    const done = await send(one, '/sign-in', { email: 'jo@example.com', password, request });
    const cookie = String(begun.headers['set-cookie']).split(';')[0] ?? '';
    const returned = await exchange(String(done.headers.location), { headers: { cookie } });
    expect(returned).toMatchObject({ status: 302, headers: { location: door } });
    return [returned.headers['set-cookie'] ?? []]
      .flat()
      .map((each) => each.split(';')[0])
      .join('; ');
  };
  const status = async (cookie: string) => (await exchange(door, { headers: { cookie } })).status;
  const first = await signIn();
  expect(await status(first)).toBe(200);
  const listed = () => one.store.applicationSessions.page(null, 1)[0];
  await until(() => listed() !== undefined, 'the session in the list of the first one', { everyMs: 50 });
  const { id = '' } = listed() ?? {};
  await exchange(`${door}ngrok/logout`, { headers: { cookie: first } });
  const isEnded = () => one.store.endedSignIns.before('', '', '', id) > 0;
  await until(isEnded, 'the end of the session at the first one', { everyMs: 50 });
  expect(await status(first)).toBe(302);

  const second = await signIn();
  expect(await status(second)).toBe(200);
  await api.call('DELETE', `/people/${person.id}`);
  await until(async () => (await status(second)) === 302, 'nobody is signed in any longer', { everyMs: 50 });
});

it('clients of any gateway reach the labelled tunnels behind an edge, and never those of a stranger', {
  timeout: 60_000,
  ...only,
}, async () => {
  const [one, two] = [await startNode(), await startNode()];
  const { token: key } = await one.store.database.write(() => issueApiKey(one.store, {}));
  const [first, stranger] = [await authtokenAt(one), await authtokenAt(one)];
  await until(() => two.store.credentials.page(null, 9).length === 2, 'the authtokens at the other node');
  const labelled = async (gateway: Gateway, authtoken: string, answer: string) => {
    const service = await startHttpService((_req, res) => void res.end(answer));
    onTestFinished(() => service.close());
    const session = await sessionAt(gateway, authtoken);
    const listener = await session.labeledListener().label('app', 'cam').listen();
    forward(listener, new URL(service.url).host);
  };
  await labelled(one, first, 'first');
  const backend = await change(two, key, 'POST', '/backends/tunnel_group', { labels: { app: 'cam' } });
  const tls_termination = { terminate_at: 'edge' };
  const edge = { hostports: ['edge.localhost:443'], backend: { backend_id: backend.id }, tls_termination };
  await change(two, key, 'POST', '/edges/tls', edge);
  const served = (gateway: Gateway) =>
    getPublic(gateway, 'https://edge.localhost/').then(
      ({ body }) => body,
      () => null,
    );
  for (const gateway of [one, two])
    await until(async () => (await served(gateway)) === 'first', 'the tunnel by both', { everyMs: 50 });
  // The one that has been there for longer counts, to the second.
  await delay(1_000);
  await labelled(two, stranger, 'stranger');
  await until(() => two.endpoints.labeled().length === 1, 'the tunnel of the stranger');
  for (const gateway of [one, two]) expect(await served(gateway)).toBe('first');
});

it('requests on a connection for another name go to the gateway that has theirs', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const server = createServer(async (req, res) => {
    const body = await text(req);
    if (body === 'break') res.write(body, () => res.destroy());
    else res.end(`${req.headers['x-forwarded-for']} ${body}`);
  });
  new WebSocketServer({ server }).on('connection', (socket) => socket.on('message', (data) => socket.send(`${data}`)));
  const to = `http://127.0.0.1:${await listening(server)}`;
  onTestFinished(() => void server.close());
  const [here, there] = [await sessionAt(one, authtoken), await sessionAt(two, authtoken)];
  const bound = await here.httpEndpoint().domain('one.localhost').listen();
  forward(bound, to);
  const authority = Buffer.from(two.sessionCa);
  forward(await there.httpEndpoint().domain('mutual.localhost').mutualTlsca(authority).listen(), to);
  forward(await there.httpEndpoint().domain('two.localhost').listen(), to);
  await until(async () => (await statusAt(one, 'https://two.localhost/')) === 200, 'the name at the other node');
  const post = (host: string, body: string, from: object = { servername: 'one.localhost', agent }) =>
    new Promise<[number | undefined, string]>((resolve, reject) => {
      const address = { host: '127.0.0.1', port: one.httpsPort, ca: one.sessionCa };
      request({ ...address, ...from, method: 'POST', headers: { host } }, (res) => {
        text(res).then((answer) => resolve([res.statusCode, answer]), reject);
      })
        .on('error', reject)
        .end(body);
    });
  const [agent, other] = [1, 2].map(() => new Agent({ keepAlive: true, maxSockets: 1 }));
  onTestFinished(() => [agent, other].forEach((each) => void each?.destroy()));
  const body = 'a'.repeat(300_000);
  for (const host of ['one.localhost', 'two.localhost', 'one.localhost', 'two.localhost'])
    expect(await post(host, body)).toEqual([200, `127.0.0.1 ${body}`]);
  expect((await post('mutual.localhost', ''))[0]).toBe(421);
  // Both gateways see it, and one counts it.
  await expect(post('two.localhost', 'break')).rejects.toThrow('aborted');
  const { token: key } = await one.store.database.write(() => issueApiKey(one.store, {}));
  const failures = async ({ httpsPort }: Gateway) => {
    const url = `https://api.localhost:${one.httpsPort}/metrics?gateway=127.0.0.1:${httpsPort}`;
    const { body: metrics } = await getPublic(one, url, { authorization: `Bearer ${key}` });
    return /upstream_failures_total (\d+)$/m.exec(metrics)?.[1];
  };
  expect([await failures(one), await failures(two)]).toEqual(['1', '0']);
  // Also on a connection that was passed on itself.
  expect(await post('two.localhost', body, { servername: 'two.localhost', agent: other })).toEqual([
    200,
    `127.0.0.1 ${body}`,
  ]);
  expect(await post('one.localhost', body, { servername: 'two.localhost', agent: other })).toEqual([
    200,
    `127.0.0.1 ${body}`,
  ]);
  const socket = new WebSocket(`wss://127.0.0.1:${one.httpsPort}/`, {
    ...{ servername: 'one.localhost', ca: one.sessionCa, headers: { host: 'two.localhost' } },
  });
  await once(socket, 'open');
  socket.send('through both');
  expect(String((await once(socket, 'message'))[0])).toBe('through both');
  socket.close();
  await once(socket, 'close');
  const session = connectHttp2(`https://127.0.0.1:${one.httpsPort}`, {
    ...{ servername: 'one.localhost', ca: one.sessionCa },
  });
  onTestFinished(() => session.destroy());
  const get = async (host: string) => {
    const stream = session.request({ ':authority': host });
    const [headers] = (await once(stream, 'response')) as [{ ':status': number }];
    return [headers[':status'], await text(stream)];
  };
  expect(await get('one.localhost')).toEqual([200, '127.0.0.1 ']);
  // Only what the certificate of the connection names.
  expect((await get('two.localhost'))[0]).toBe(421);
  await bound.close();
  forward(await there.httpEndpoint().domain('one.localhost').listen(), to);
  await until(async () => (await get('one.localhost'))[0] === 200, 'the name at its new gateway', { everyMs: 20 });
  expect(session.closed).toBe(false);
});

it('only a gateway of the cluster can pass connections on', { timeout: 60_000, ...only }, async () => {
  const one = await startNode();
  const session = await sessionAt(one, await authtokenAt(one));
  forward(await session.httpEndpoint().domain('a.localhost').scheme('HTTP').listen(), await upstream());
  const [node] = await server.query<{ id: string }>('SELECT id FROM device_agent.nodes', `c${databases}`);
  const passOn = async (key: string) => {
    const ends = { clientIp: '203.0.113.7', clientPort: 1, serverIp: '127.0.0.1', serverPort: 80 };
    const socket = connect(one.httpsPort, '127.0.0.1');
    socket.write(new RelayTickets(() => [key], 'another', Date.now).issue(ends, node?.id ?? '', { port: 'http' }));
    socket.write('GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n');
    return text(socket);
  };
  expect(await passOn(one.store.box.keyFor('relay'))).toContain('a.localhost 203.0.113.7');
  expect(await passOn(one.store.box.keyFor('another purpose'))).not.toContain('a.localhost');
});

it('policies forward to internal endpoints at other gateways, whose policies apply', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const at = async (gateway: Gateway, domain: string, policy: object) => {
    const service = await startHttpService((req, res) => {
      const { 'x-forwarded-for': from, 'x-passed': passed, host } = req.headers;
      res.end(`${domain} ${host} ${passed} ${from}`);
    });
    onTestFinished(() => service.close());
    const session = await sessionAt(gateway, authtoken);
    const listener = await session.httpEndpoint().domain(domain).trafficPolicy(JSON.stringify(policy)).listen();
    forward(listener, service.url);
  };
  const passed = { type: 'add-headers', config: { headers: { 'x-passed': 'inner' } } };
  const denied = {
    expressions: ["req.url.path == '/denied'"],
    actions: [{ type: 'deny', config: { status_code: 418 } }],
  };
  await at(two, 'inner.internal', { on_http_request: [denied, { actions: [passed] }] });
  const to = (url: string) => ({ on_http_request: [{ actions: [{ type: 'forward-internal', config: { url } }] }] });
  await at(one, 'outer.localhost', to('https://inner.internal'));
  const answer = () => getPublic(one, 'https://outer.localhost/');
  await until(async () => (await answer()).status === 200, 'the internal endpoint', { everyMs: 50 });
  expect((await answer()).body).toBe('inner.internal outer.localhost inner 127.0.0.1');
  const { body } = await getPublic(one, 'https://outer.localhost/', { 'x-forwarded-for': '203.0.113.9' });
  expect(body).toBe('inner.internal outer.localhost inner 203.0.113.9, 127.0.0.1');
  expect(await statusAt(one, 'https://outer.localhost/denied')).toBe(418);
  expect(await statusAt(two, 'https://outer.localhost/')).toBe(200);

  const asked = { type: 'http-request', config: { url: 'https://inner.internal/', method: 'GET' } };
  const told = { type: 'custom-response', config: { body: `\${actions.ngrok.http_request.res.body}` } };
  await at(one, 'asking.localhost', { on_http_request: [{ actions: [asked, told] }] });
  expect((await getPublic(one, 'https://asking.localhost/')).body).toBe(
    'inner.internal inner.internal inner 127.0.0.1',
  );

  // Who signs in is asked at the host that the client has asked for, whatever the policy of the other gateway makes of it.
  await at(two, 'gate.internal', { on_http_request: [{ actions: [{ type: 'gateway-sign-in' }] }] });
  const rewritten = { type: 'url-rewrite', config: { from: '.*', to: 'https://bank.example/inner' } };
  const unseen = { type: 'add-headers', config: { headers: { 'x-sees': `\${'set-cookie' in res.headers}` } } };
  await at(one, 'gated.localhost', {
    on_http_request: [{ actions: [rewritten] }, ...to('https://gate.internal').on_http_request],
    on_http_response: [{ actions: [unseen] }],
  });
  const gated = () => getPublic(one, 'https://gated.localhost/live?q=1', { 'gateway-client-asked': 'bank.example/' });
  await until(async () => (await gated()).status === 302, 'the gate', { everyMs: 50 });
  const { headers } = await gated();
  expect(headers).toMatchObject({
    'x-sees': 'false',
    'set-cookie': [expect.stringContaining('__Host-ngrok-sign-in-')],
  });
  const page = await getPublic(one, String(headers.location));
  expect(page.body).toMatch(/to continue to gated\.localhost[:,]/);

  // Nobody reaches it by its name, and two that forward to each other do not make a circle.
  expect(await statusAt(two, 'https://inner.internal/')).not.toBe(200);
  await at(one, 'a.internal', to('https://b.internal'));
  await at(two, 'b.internal', to('https://a.internal'));
  await at(two, 'circle.localhost', to('https://a.internal'));
  expect(await statusAt(two, 'https://circle.localhost/')).toBeGreaterThanOrEqual(400);
});

it('policies forward connections to internal endpoints at other gateways', { timeout: 60_000, ...only }, async () => {
  const { one, two, authtoken } = await twoNodes('127.0.0.2');
  const [outer, inner] = [await sessionAt(one, authtoken), await sessionAt(two, authtoken)];
  const { cert, key } = await selfSigned();
  // It answers when the client has ended its side, with all that it got.
  const answer = (socket: Socket) => {
    const said: Buffer[] = [];
    socket.on('error', () => {}).on('data', (bytes) => said.push(bytes));
    socket.once('end', () => socket.end(Buffer.concat(said)));
  };
  const plain = await listening(createTcpServer({ allowHalfOpen: true }, answer).unref());
  const secure = await listening(createTlsServer({ cert, key, allowHalfOpen: true }, answer).unref());
  const to = (url: string, ...before: object[]) =>
    JSON.stringify({ on_tcp_connect: [{ actions: [...before, { type: 'forward-internal', config: { url } }] }] });
  const onlyFrom = (cidr: string) => ({
    on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { enforce: true, allow: [cidr] } }] }],
  });

  // Its upstream and its policy see who the client is, whatever gateway the client came to.
  const db = inner.tcpEndpoint().remoteAddr('db.internal:5432').proxyProto('1');
  const bound = await db.trafficPolicy(JSON.stringify(onlyFrom('127.0.0.2/32'))).listen();
  forward(bound, `127.0.0.1:${plain}`);
  const port = Number(
    new URL(String((await outer.tcpEndpoint().trafficPolicy(to('tcp://db.internal:5432')).listen()).url())).port,
  );
  const said = (localAddress: string, at = port) => echoed(connect({ host: '127.0.0.1', localAddress, port: at }));
  await until(async () => (await said('127.0.0.2')) !== null, 'the tcp endpoint', { everyMs: 50 });
  expect(await said('127.0.0.2')).toMatch(/^PROXY TCP4 127\.0\.0\.2 127\.0\.0\.1 \d+ \d+\r\nhello$/);
  expect(await said('127.0.0.1')).toBeNull();

  // A cloud endpoint has its port at every gateway, also where the agent is not.
  const api = await GatewayClient.of(one);
  const cloud = { url: 'tcp://', traffic_policy: to('tcp://db.internal:5432') };
  const { body: created } = await api.call('POST', '/endpoints', cloud);
  for (const host of ['127.0.0.1', '127.0.0.2']) {
    const client = connect({ host, localAddress: '127.0.0.2', port: Number(new URL(String(created.url)).port) });
    expect(await echoed(client)).toMatch(new RegExp(`^PROXY TCP4 127\\.0\\.0\\.2 ${host} .*\r\nhello$`));
  }

  // TLS reaches the internal endpoint as it is, unless the public one terminates it.
  forward(await inner.tlsEndpoint().domain('vault.internal').listen(), `tls://127.0.0.1:${secure}`);
  await outer.tlsEndpoint().domain('vault.localhost').trafficPolicy(to('tls://vault.internal')).listen();
  forward(await inner.tlsEndpoint().domain('open.internal').listen(), `127.0.0.1:${plain}`);
  await outer
    .tlsEndpoint()
    .domain('open.localhost')
    .trafficPolicy(to('tls://open.internal', { type: 'terminate-tls' }))
    .listen();
  const overTls = async (servername: string) => {
    const from = { host: '127.0.0.1', port: one.httpsPort, servername, rejectUnauthorized: false, allowHalfOpen: true };
    const client = connectTls(from);
    let subject: string | undefined;
    client.once('secureConnect', () => {
      subject = client.getPeerX509Certificate()?.subject;
    });
    return [await echoed(client, 'secureConnect'), subject];
  };
  await until(async () => (await overTls('vault.localhost'))[0] !== null, 'the tls endpoint', { everyMs: 50 });
  expect(await overTls('vault.localhost')).toEqual(['hello', 'CN=localhost']);
  await until(async () => (await overTls('open.localhost'))[0] !== null, 'the decrypted one', { everyMs: 50 });
  expect((await overTls('open.localhost'))[0]).toBe('hello');

  const demanding = { type: 'terminate-tls', config: { mutual_tls_certificate_authorities: [two.sessionCa] } };
  const strict = JSON.stringify({ on_tcp_connect: [{ actions: [demanding] }] });
  forward(await inner.tlsEndpoint().domain('strict.internal').trafficPolicy(strict).listen(), `127.0.0.1:${plain}`);

  // Requests that are forwarded with their connection reach it, too.
  forward(await inner.httpEndpoint().domain('web.internal').listen(), await upstream());
  await outer.httpEndpoint().domain('web.localhost').trafficPolicy(to('https://web.internal')).listen();
  const web = () => getPublic(one, 'https://web.localhost/', { 'x-forwarded-for': '203.0.113.9' }).catch(() => null);
  await until(async () => (await web())?.status === 200, 'the internal endpoint', { everyMs: 50 });
  expect((await web())?.body).toBe('web.localhost 203.0.113.9, 127.0.0.1');

  // Nothing that an internal endpoint demands of a handshake is left out; by now, the other gateway knows of it.
  for (const before of [[], [{ type: 'terminate-tls' }]]) {
    const domain = `strict${before.length}.localhost`;
    await outer
      .tlsEndpoint()
      .domain(domain)
      .trafficPolicy(to('tls://strict.internal', ...before))
      .listen();
    expect((await overTls(domain))[0]).toBeNull();
  }

  // What is offline, or would go on and on, ends.
  await bound.close();
  await until(async () => (await said('127.0.0.2')) === null, 'it is offline', { everyMs: 50 });
  for (const [session, name, next] of [
    [outer, 'a', 'b'],
    [inner, 'b', 'a'],
  ] as const)
    await session
      .tcpEndpoint()
      .remoteAddr(`${name}.internal:1`)
      .trafficPolicy(to(`tcp://${next}.internal:1`))
      .listen();
  const circle = await outer.tcpEndpoint().trafficPolicy(to('tcp://b.internal:1')).listen();
  expect(await said('127.0.0.1', Number(new URL(String(circle.url())).port))).toBeNull();
});

/** What comes back of a greeting; null when the connection breaks. */
async function echoed(client: Socket, opened = 'connect'): Promise<string | null> {
  try {
    await once(client, opened);
    client.end('hello');
    return (await text(client)) || null;
  } catch {
    return null;
  }
}

it('clients of a pool get a member at their gateway, or one at another gateway when there is none', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const bind = async (gateway: Gateway, answer: string) => {
    const service = await startHttpService((_req, res) => void res.end(answer));
    onTestFinished(() => service.close());
    const session = await sessionAt(gateway, authtoken);
    const listener = await session.httpEndpoint().domain('pool.localhost').poolingEnabled(true).listen();
    forward(listener, service.url);
    return listener;
  };
  const answers = () =>
    Promise.all(
      [one, two].map(async (node) => (await getPublic(node, 'https://pool.localhost/').catch(() => null))?.body),
    );
  const [first] = [await bind(one, 'at one'), await bind(two, 'at two')];
  expect(await answers()).toEqual(['at one', 'at two']);
  await first.close();
  await until(async () => String(await answers()) === 'at two,at two', 'the member that is left', { everyMs: 50 });
  await bind(one, 'at one');
  expect(await answers()).toEqual(['at one', 'at two']);
});

it('every gateway serves cloud endpoints, whose URLs no agent has anywhere', { timeout: 60_000, ...only }, async () => {
  const { one, two, authtoken } = await twoNodes();
  const [agents, api] = [await sessionAt(two, authtoken), await GatewayClient.of(one)];
  const policyOf = (body: string) =>
    JSON.stringify({ on_http_request: [{ actions: [{ type: 'custom-response', config: { body } }] }] });
  const create = (host: string) =>
    api.call('POST', '/endpoints', { url: `https://${host}`, traffic_policy: policyOf('one') });
  const bodies = async () =>
    Promise.all([one, two].map(async (node) => (await getPublic(node, 'https://cloud.localhost/')).body));

  const { body } = await create('cloud.localhost');
  expect(await bodies()).toEqual(['one', 'one']);
  await api.call('PATCH', `/endpoints/${body.id}`, { traffic_policy: policyOf('two') });
  expect(await bodies()).toEqual(['two', 'two']);
  await expect(agents.httpEndpoint().domain('cloud.localhost').listen()).rejects.toThrow(/cloud endpoint serves/);
  const rejects = JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'deny' }] }] });
  const tcp = await api.call('POST', '/endpoints', { url: 'tcp://', traffic_policy: rejects });
  const { host } = new URL(String(tcp.body.url));
  await expect(agents.tcpEndpoint().remoteAddr(host).listen()).rejects.toThrow(/cloud endpoint serves/);
  await agents.httpEndpoint().domain('agent.localhost').listen();
  expect(await create('agent.localhost')).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_334' } });
  await api.call('DELETE', `/endpoints/${body.id}`);
  expect((await getPublic(two, 'https://cloud.localhost/')).status).toBe(404);
});

it('of an agent and a cloud endpoint that want one URL at once, one gets it', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const [agents, api] = [await sessionAt(two, authtoken), await GatewayClient.of(one)];
  const policy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] });
  const hosts = Array.from({ length: 10 }, (_, at) => `race${at}.localhost`);
  const winners = hosts.map(async (host) => {
    const [bound, created] = await Promise.allSettled([
      agents.httpEndpoint().domain(host).listen(),
      api.call('POST', '/endpoints', { url: `https://${host}`, traffic_policy: policy }),
    ]);
    return [bound.status === 'fulfilled', created.status === 'fulfilled' && created.value.status === 201];
  });
  for (const [isBound, isCreated] of await Promise.all(winners)) expect(isBound).toBe(!isCreated);
});

it('a share link for one browser opens at one of two gateways, and is revoked at both', {
  timeout: 60_000,
  ...only,
}, async () => {
  const [one, two] = [await startNode(), await startNode()];
  const api = await GatewayClient.of(one);
  const url = 'https://shared.localhost';
  const actions = [{ type: 'gateway-share-links' }, { type: 'custom-response', config: { body: 'in' } }];
  await api.call('POST', '/endpoints', { url, traffic_policy: JSON.stringify({ on_http_request: [{ actions }] }) });
  const { body: made } = await api.call('POST', '/share_links', { url, expires_in: 60, max_uses: 1 });
  const { pathname } = new URL(String(made.link));
  const browserAt = (gateway: Gateway) =>
    new WebClient((to, sent) => exchange(to.replace('.localhost', `.localhost:${gateway.httpsPort}`), sent));
  const browsers = [browserAt(one), browserAt(two)];
  const pressed = await Promise.all(browsers.map((each) => each.visit(url + pathname, { method: 'POST' })));
  expect(pressed.map(({ status }) => status).sort()).toEqual([303, 403]);
  const opened = browsers[pressed.findIndex(({ status }) => status === 303)];
  const cookie = opened?.cookies.map(({ name, value }) => `${name}=${value}`).join('; ') ?? '';
  const statuses = () => Promise.all([one, two].map(async (each) => (await getPublic(each, url, { cookie })).status));
  expect(await statuses()).toEqual([200, 200]);
  await api.call('DELETE', `/share_links/${made.id}`);
  expect(await statuses()).toEqual([403, 403]);
});

it('clients wait at any gateway for an agent that comes back at another one', {
  timeout: 60_000,
  ...only,
}, async () => {
  const { one, two, authtoken } = await twoNodes();
  const three = await startNode();
  const dataDir = temporaryFolder();
  const before = await startClusterNode(databaseUrl(), undefined, { dataDir });
  const upstream = await startHttpService((_req, res) => void res.end('seen'));
  onTestFinished(() => upstream.close());
  const bind = async (session: ngrok.Session, name: string) => {
    const listener = await session.httpEndpoint().domain(name).listen(false);
    listener.forward(upstream.url).catch(() => {});
    return listener;
  };
  const statusAt = async (gateway: Gateway, name: string) => (await getPublic(gateway, `https://${name}/`)).status;
  await bind(await sessionAt(one, authtoken), 'wandering.localhost');
  for (const other of [two, three])
    await until(async () => (await statusAt(other, 'wandering.localhost')) === 200, 'the endpoint at another gateway');
  await before.close();
  for (const session of [...one.sessions.sessions]) session.end(new Error('cut by the test'));
  const rows = () => two.store.database.allValues('SELECT key FROM online WHERE place IS NOT NULL', []);
  await until(() => rows().length === 0, 'no gateway has it');
  // Its copy had the name, and has it no more when it serves clients again.
  const restarted = await startClusterNode(databaseUrl(), undefined, { dataDir });
  const answers = [one, two, three, restarted].map((gateway) => statusAt(gateway, 'wandering.localhost'));
  // Nor have the others heard of it again when they hear of the endpoint.
  const elsewhere = await sessionAt(restarted, authtoken);
  await bind(elsewhere, 'wandering.localhost');
  expect(await Promise.all(answers)).toEqual([200, 200, 200, 200]);

  // Its session goes on.
  const listener = await bind(elsewhere, 'deleted.localhost');
  await until(async () => (await statusAt(three, 'deleted.localhost')) === 200, 'the second endpoint');
  await listener.close();
  await until(async () => (await statusAt(three, 'deleted.localhost')) === 404, '404');
});

it('the encryption key is changed when all gateways know the next one, and connections are passed on all the while', {
  timeout: 60_000,
  ...only,
}, async () => {
  const next = Buffer.alloc(32, 8).toString('base64');
  const both = { encryptionKey: `${CLUSTER_KEY},${next}` };
  const one = await startClusterNode(databaseUrl(), '127.0.0.1', both);
  const two = await startNode();
  forward(
    await (await sessionAt(two, await authtokenAt(one))).httpEndpoint().domain('a.localhost').listen(),
    await upstream(),
  );
  const reached = async (gateway: Gateway, url: string) => (await statusAt(gateway, url)) === 200;
  await until(() => reached(one, 'https://a.localhost/'), 'the name', { everyMs: 20 });
  const settings = settingsOf(one, both.encryptionKey);
  await expect(rotateKey(settings)).rejects.toThrow(`127.0.0.1:${two.httpsPort} does not know the next key`);
  // It is restarted with both keys.
  await two.close();
  const again = await startClusterNode(databaseUrl(), '127.0.0.1', both);
  const session = await sessionAt(again, await authtokenAt(one));
  forward(await session.httpEndpoint().domain('b.localhost').listen(), await upstream());
  await until(() => reached(one, 'https://b.localhost/'), 'the name at its new gateway', { everyMs: 20 });
  let isDone = false;
  const statuses = new Set<number | null | undefined>();
  const client = (async () => {
    while (!isDone) statuses.add(await statusAt(one, 'https://b.localhost/'));
  })();
  const { id } = await rotateKey(settings);
  await until(() => [one, again].every(({ store }) => store.box.keyIds.current === id), 'both use it');
  for (let count = 0; count < 5; count += 1) statuses.add(await statusAt(one, 'https://b.localhost/'));
  isDone = true;
  await client;
  expect([...statuses]).toEqual([200]);
  // From then on, the one before is needed no more.
  await again.close();
  const alone = await startClusterNode(databaseUrl(), '127.0.0.1', { encryptionKey: next });
  expect(alone.sessionCa).toBe(one.sessionCa);
  await expect(startNode()).rejects.toThrow('GATEWAY_ENCRYPTION_KEY is not the key');
});

it('a bulk action that is begun at any gateway is done', { timeout: 60_000, ...only }, async () => {
  const { one, two } = await twoNodes();
  const { token: key } = await one.store.database.write(() => issueApiKey(one.store, {}));
  await joinedDevices(one.store, [{}, {}]);
  await until(() => two.store.devices.count('TRUE', []) === 2, 'the devices at the other gateway', { everyMs: 20 });
  for (const gateway of [one, two]) {
    const { id } = await change(gateway, key, 'POST', '/bulk_actions', {
      ...{ action: 'label', filter: { site: 'quarry.example.com' }, labels: { at: String(gateway.httpsPort) } },
    });
    const isDone = async () => (await ask(gateway, key, `/bulk_actions/${id}`)).state === 'finished';
    await until(isDone, 'the end of the bulk action', { everyMs: 50 });
  }
  const isLabeled = () => two.store.devices.page(null, 2).every(({ labels }) => labels.at === String(two.httpsPort));
  await until(isLabeled, 'the labels at the other gateway', { everyMs: 20 });
});
