import { once } from 'node:events';
import { Agent, createServer, type ServerResponse } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import type { Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { OnlineCloudEndpoints } from '../../src/gateway/cloud-endpoints/online-cloud-endpoints.ts';
import { EndpointPolicies } from '../../src/gateway/endpoints/endpoint-policies.ts';
import { EndpointRegistry } from '../../src/gateway/endpoints/endpoint-registry.ts';
import { addressColumns } from '../../src/gateway/store/cloud-endpoints.ts';
import { openStore } from '../../src/gateway/store/store.ts';
import type { PortRange } from '../../src/lib/network/port-range.ts';
import { SecretsBox } from '../../src/lib/secrets-box.ts';
import { enrolmentKey, installKey } from '../support/enrolment.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, getPublic, makeDataDir, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { ask } from '../support/http-request.ts';
import { listening } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';
import { recordingLog } from '../support/silent-log.ts';

let gateway: TestGateway;
let api: GatewayClient;
let session: Session;
let tcpPorts: PortRange;
beforeAll(async () => {
  tcpPorts = await freePorts(4);
  gateway = await startTestGateway({ tcpPorts });
  api = await GatewayClient.of(gateway);
  session = await agentSession(gateway).connect();
});
afterAll(() => gateway.close());

type Action = { type: string; config?: object };

const policyOf = (...actions: Action[]) => JSON.stringify({ on_http_request: [{ actions }] });
const answer = (body: string): Action => ({ type: 'custom-response', config: { status_code: 200, body } });
const forwardTo = (url: string, more = {}): Action => ({ type: 'forward-internal', config: { url, ...more } });

let names = 0;
/** A name that no other test uses. */
const freshName = () => `cloud${names++}.localhost`;

async function create(url: string, traffic_policy: string, more = {}): Promise<string> {
  const { status, body } = await api.call('POST', '/endpoints', { url, traffic_policy, ...more });
  if (status !== 201) throw new Error(JSON.stringify(body));
  return String(body.id);
}

/** The name of a cloud endpoint for plain HTTP. */
async function createHttp(...actions: Action[]): Promise<{ host: string; id: string }> {
  const host = freshName();
  return { host, id: await create(`http://${host}`, policyOf(...actions)) };
}

/** An internal endpoint of the agent, whose upstream answers as the handler does. */
async function internalEndpoint(host: string, handler: (res: ServerResponse) => void) {
  const upstream = createServer((_req, res) => handler(res));
  onTestFinished(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const listener = await session.httpEndpoint().scheme('HTTP').domain(host).listen(false);
  listener.forward(`http://127.0.0.1:${await listening(upstream)}`).catch(() => {});
  return listener;
}

const get = (host: string, options = {}) => ask(gateway.httpPort, host, options);

describe('a cloud endpoint', () => {
  it.each<[Action, object]>([
    [answer('hello'), { status: 200, body: 'hello' }],
    [{ type: 'redirect', config: { to: 'https://example.com/' } }, { status: 302 }],
    [{ type: 'deny', config: { status_code: 451 } }, { status: 451 }],
  ])('answers as its policy says: %j', async (action, expected) => {
    const { host } = await createHttp(action);
    expect(await get(host)).toMatchObject(expected);
  });

  it.each([
    ['GET', undefined, {}],
    ['POST', 'a body', {}],
    ['GET', undefined, { connection: 'upgrade', upgrade: 'websocket' }],
  ])('answers 502 ERR_NGROK_6029 to %s %s %j that its policy lets through', async (method, body, headers) => {
    const { host } = await createHttp({ type: 'add-headers', config: { headers: { 'x-seen': '1' } } });
    const res = await get(host, { method, body, headers });
    expect(res).toMatchObject({ status: 502, headers: { 'ngrok-error-code': 'ERR_NGROK_6029' } });
  });

  it('serves HTTPS with the certificate of its name, and is listed with its policy', async () => {
    const host = freshName();
    const policy = policyOf(answer('secure'));
    const id = await create(`https://${host}`, policy, { description: 'd', metadata: 'm' });
    expect(await getPublic(gateway, `https://${host}/`)).toMatchObject({ status: 200, body: 'secure' });
    const url = `https://${host}:${gateway.httpsPort}`;
    const row = { id, type: 'cloud', url, traffic_policy: policy, description: 'd', metadata: 'm' };
    const { body } = await api.call('GET', '/endpoints');
    expect(body.endpoints).toContainEqual(expect.objectContaining({ ...row, bindings: ['public'] }));
  });

  it('answers while the device sleeps, and forwards to it when it is online', async () => {
    const fallback = forwardTo('http://sleeper.internal', { on_error: 'continue' });
    const { host } = await createHttp(fallback, answer('asleep'));
    expect((await get(host)).body).toBe('asleep');
    const listener = await internalEndpoint('sleeper.internal', (res) => res.end('awake'));
    expect((await get(host)).body).toBe('awake');
    await listener.close();
    expect((await get(host)).body).toBe('asleep');
  });

  it('applies a changed policy to the next request of a connection, and ends none under way', async () => {
    const begun: ServerResponse[] = [];
    await internalEndpoint('slow.internal', (res) => void begun.push(res));
    const { host, id } = await createHttp(forwardTo('http://slow.internal'));
    const slow = get(host);
    await expect.poll(() => begun.length).toBe(1);
    await api.call('PATCH', `/endpoints/${id}`, { traffic_policy: policyOf(answer('first')) });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    expect((await get(host, { agent })).body).toBe('first');
    await api.call('PATCH', `/endpoints/${id}`, { traffic_policy: policyOf(answer('second')) });
    expect((await get(host, { agent })).body).toBe('second');
    begun[0]?.end('finished');
    expect((await slow).body).toBe('finished');
  });

  it('keeps the counts of a rate limit when its policy changes', async () => {
    const limit = {
      type: 'rate-limit',
      config: { name: 'all', algorithm: 'sliding_window', capacity: 1, rate: '60s', bucket_key: ['conn.client_ip'] },
    };
    const { host, id } = await createHttp(limit, answer('first'));
    expect((await get(host)).status).toBe(200);
    await api.call('PATCH', `/endpoints/${id}`, { traffic_policy: policyOf(limit, answer('second')) });
    expect((await get(host)).status).toBe(429);
  });

  it('ends with what it has forwarded when it is deleted', async () => {
    let begun = false;
    await internalEndpoint('endless.internal', (res) => {
      begun = true;
      res.writeHead(200).write('begun');
    });
    const { host, id } = await createHttp(forwardTo('http://endless.internal'));
    const open = get(host);
    await expect.poll(() => begun).toBe(true);
    expect((await api.call('DELETE', `/endpoints/${id}`)).status).toBe(204);
    expect((await open.catch(() => ({ complete: false }))).complete).toBe(false);
    expect(await get(host)).toMatchObject({ status: 404, headers: { 'ngrok-error-code': 'ERR_NGROK_3200' } });
  });

  it('moves to another name', async () => {
    const { host, id } = await createHttp(answer('moved'));
    const next = freshName();
    expect((await api.call('PATCH', `/endpoints/${id}`, { url: `http://${next}` })).status).toBe(200);
    expect((await get(next)).body).toBe('moved');
    expect((await get(host)).status).toBe(404);
  });

  it('forwards to internal cloud endpoints, whose policies run too', async () => {
    await create('http://inner.internal', policyOf(answer('inner')));
    const { host } = await createHttp(forwardTo('http://inner.internal'));
    expect((await get(host)).body).toBe('inner');
  });

  it('forwards TLS connections, and closes those that its policy lets through', async () => {
    const { cert, key } = await selfSigned('device.internal');
    const upstream = createTlsServer({ cert, key }, (socket) => socket.end('by the device'));
    onTestFinished(() => void upstream.close());
    const listener = await session.tlsEndpoint().domain('device.internal').listen(false);
    listener.forward(`127.0.0.1:${await listening(upstream)}`).catch(() => {});
    const forward = { on_tcp_connect: [{ actions: [forwardTo('tls://device.internal:443')] }] };
    const [through, closed] = [freshName(), freshName()];
    await create(`tls://${through}`, JSON.stringify(forward));
    await create(
      `tls://${closed}`,
      JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'log', config: { metadata: {} } }] }] }),
    );
    const connectTo = (servername: string) =>
      connectTls({ host: '127.0.0.1', port: gateway.httpsPort, servername, rejectUnauthorized: false });
    const [bytes] = await once(connectTo(through), 'data');
    expect(String(bytes)).toBe('by the device');
    const [error] = await once(connectTo(closed), 'error');
    expect(error).toBeInstanceOf(Error);
  });

  it('shares its URL with others when all are pooled', async () => {
    const url = `http://${freshName()}`;
    const pooling_enabled = true;
    await create(url, policyOf(answer('a')), { pooling_enabled });
    const second = await create(url, policyOf(answer('b')), { pooling_enabled });
    const { hostname } = new URL(url);
    expect(new Set([(await get(hostname)).body, (await get(hostname)).body])).toEqual(new Set(['a', 'b']));
    const alone = { pooling_enabled: false };
    expect(await api.call('PATCH', `/endpoints/${second}`, alone)).toMatchObject({
      body: { error_code: 'ERR_NGROK_18017' },
    });
  });

  it('of a wildcard serves the names that no agent has bound', async () => {
    const { status } = await api.call('POST', '/reserved_domains', { domain: '*.site.example.com' });
    expect(status).toBe(201);
    await create('http://*.site.example.com', policyOf(answer('asleep')));
    expect((await get('cam.site.example.com')).body).toBe('asleep');
    await internalEndpoint('cam.site.example.com', (res) => res.end('awake'));
    expect((await get('cam.site.example.com')).body).toBe('awake');
  });
});

describe('a public tcp cloud endpoint', () => {
  const onConnect = (...actions: Action[]) => JSON.stringify({ on_tcp_connect: [{ actions }] });
  /** What a client gets at a port; null: nothing, it is closed. */
  const bytesAt = async (port: number): Promise<string | null> => {
    const socket = connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    return Promise.race([
      once(socket, 'data').then(([bytes]) => String(bytes)),
      once(socket, 'close').then(() => null),
    ]).catch(() => null);
  };
  let services = 0;
  /** An internal tcp endpoint of the agent, whose upstream says its name. */
  const service = async () => {
    const host = `db${services++}.internal`;
    const upstream = createTcpServer((socket) => socket.on('error', () => {}).end(host));
    onTestFinished(() => void upstream.close());
    const listener = await session.tcpEndpoint().remoteAddr(`${host}:1`).listen(false);
    listener.forward(`127.0.0.1:${await listening(upstream)}`).catch(() => {});
    return { host, policy: onConnect(forwardTo(`tcp://${host}:1`)) };
  };
  /** Removes it at the end of the test: the ports are few. */
  const createTcp = async (url: string, policy: string) => {
    const id = await create(url, policy);
    onTestFinished(async () => void (await api.call('DELETE', `/endpoints/${id}`)));
    const { body } = await api.call('GET', `/endpoints/${id}`);
    return { id, body, port: Number(body.port) };
  };

  it('serves a port of the gateway’s choice by its policy, until it is deleted', async () => {
    const { host, policy } = await service();
    const { id, body, port } = await createTcp('tcp://', policy);
    expect(body).toMatchObject({ url: `tcp://localhost:${port}`, proto: 'tcp', bindings: ['public'] });
    expect(await bytesAt(port)).toBe(host);
    await api.call('PATCH', `/endpoints/${id}`, { traffic_policy: onConnect({ type: 'deny' }) });
    expect(await bytesAt(port)).toBeNull();
    await api.call('DELETE', `/endpoints/${id}`);
    expect(await bytesAt(port)).toBeNull();
  });

  it('has a reserved address, and moves to another port', async () => {
    const { body: reserved } = await api.call('POST', '/reserved_addrs', {});
    onTestFinished(async () => void (await api.call('DELETE', `/reserved_addrs/${reserved.id}`)));
    const { host, policy } = await service();
    const { id, body, port } = await createTcp(`tcp://${reserved.addr}`, policy);
    expect(body).toMatchObject({ hostport: reserved.addr, tcp_addr: { id: reserved.id } });
    const next = port === tcpPorts.first ? tcpPorts.last : tcpPorts.first;
    expect((await api.call('PATCH', `/endpoints/${id}`, { url: `tcp://localhost:${next}` })).status).toBe(200);
    expect([await bytesAt(next), await bytesAt(port)]).toEqual([host, null]);
  });

  it('keeps its port from agents, and does not get theirs', async () => {
    const { host, policy } = await service();
    const { port } = await createTcp('tcp://', policy);
    const listener = await session.tcpEndpoint().listen(false);
    onTestFinished(() => listener.close());
    const theirs = Number(new URL(listener.url() ?? '').port);
    expect(theirs).not.toBe(port);
    await expect(session.tcpEndpoint().remoteAddr(`localhost:${port}`).listen(false)).rejects.toThrow(
      /cloud endpoint serves .*ERR_NGROK_334/s,
    );
    const refused = await api.call('POST', '/endpoints', {
      url: `tcp://localhost:${theirs}`,
      traffic_policy: policy,
    });
    expect(refused).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_334' } });
    expect(await bytesAt(port)).toBe(host);
  });

  it('is refused, or not served, on a gateway without ports for it, and served again after a restart with them', async () => {
    const dataDir = await makeDataDir();
    const ports = await freePorts(1);
    const body = { url: 'tcp://', traffic_policy: onConnect({ type: 'log', config: { metadata: { seen: true } } }) };
    const before = await startTestGateway({ dataDir, tcpPorts: ports });
    expect((await (await GatewayClient.of(before)).call('POST', '/endpoints', body)).status).toBe(201);
    await before.close();
    const { log, lines } = recordingLog();
    const without = await startTestGateway({ dataDir, log });
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'tcp port of a cloud endpoint not opened' }));
    const refused = await (await GatewayClient.of(without)).call('POST', '/endpoints', body);
    expect(refused).toMatchObject({ status: 400, body: { msg: expect.stringContaining('GATEWAY_TCP_PORTS is off') } });
    await without.close();
    const after = recordingLog();
    const again = await startTestGateway({ dataDir, tcpPorts: ports, log: after.log });
    onTestFinished(() => again.close());
    expect(await bytesAt(ports.first)).toBeNull();
    expect(after.lines).toContainEqual(expect.objectContaining({ msg: 'traffic policy log' }));
  });
});

it('the port of a public tcp endpoint is tried again until it can be opened, and closed once', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const store = openStore(join(await makeDataDir(), 'gateway.db'), new SecretsBox(Buffer.alloc(32)));
  onTestFinished(() => store.database.close());
  const { log, lines } = recordingLog();
  const policies = new EndpointPolicies({ ipPolicies: () => null, log });
  const addresses = { baseDomain: 'localhost', ports: { http: 80, https: 443 }, tcpHost: 'localhost' };
  const context = { store, endpoints: new EndpointRegistry(), addresses, log };
  const online = new OnlineCloudEndpoints(context, { policies, isLeased: null });
  const asked: string[] = [];
  let isTaken = true;
  const stop = online.openPorts({
    open: async (port) => {
      asked.push(`open ${port}`);
      if (isTaken) throw new Error('EADDRINUSE');
    },
    close: (port) => void asked.push(`close ${port}`),
  });
  const address = addressColumns({ protocol: 'tcp', internal: false, host: 'tcp.localhost', port: 20_001 });
  const row = { id: 'ep_1', created_at: '', updated_at: '', description: null, metadata: null, pooling_enabled: false };
  await store.database.write(() => store.cloudEndpoints.insert({ ...row, ...address, traffic_policy: '{}' }));
  await online.settled();
  const tryAgain = async () => {
    vi.advanceTimersByTime(5_000);
    await online.settled();
  };
  await tryAgain();
  isTaken = false;
  await tryAgain();
  await tryAgain();
  await store.database.write(() => store.cloudEndpoints.delete('ep_1'));
  await tryAgain();
  stop();
  expect(asked).toEqual(['open 20001', 'open 20001', 'open 20001', 'close 20001']);
  expect(lines.map(({ msg }) => msg)).toEqual([
    'tcp port of a cloud endpoint not opened',
    'tcp port of a cloud endpoint opened',
  ]);
});

it('a device gets names below its site although a wildcard cloud endpoint serves the site', async () => {
  await api.call('POST', '/reserved_domains', { domain: '*.fleet.localhost' });
  await create('http://*.fleet.localhost', policyOf(answer('asleep')));
  const { secret } = await enrolmentKey(gateway, { site: '*.fleet.localhost' });
  const { body } = await api.call('POST', '/enrolments', { install_key: installKey(), secret, name: 'one' });
  const device = await agentSession({ ...gateway, authtoken: String(body.authtoken) }).connect();
  const listener = await device.httpEndpoint().scheme('HTTP').domain('cam.fleet.localhost').listen(false);
  expect(listener.url()).toContain('cam.fleet.localhost');
  expect((await get('other.fleet.localhost')).body).toBe('asleep');
});

it('cloud endpoints are served again after a restart, at the ports that the gateway has then', async () => {
  const dataDir = await makeDataDir();
  const before = await startTestGateway({ dataDir });
  const body = { url: 'https://stays.localhost', traffic_policy: policyOf(answer('still here')) };
  const { body: made } = await (await GatewayClient.of(before)).call('POST', '/endpoints', body);
  await before.close();
  const after = await startTestGateway({ dataDir });
  onTestFinished(() => after.close());
  expect((await getPublic(after, 'https://stays.localhost/')).body).toBe('still here');
  expect((await ask(after.httpPort, 'stays.localhost')).headers.location).toContain(`:${after.httpsPort}/`);
  const client = await GatewayClient.of(after);
  const changed = await client.call('PATCH', `/endpoints/${made.id}`, { description: 'b', bindings: ['public'] });
  expect(changed.body).toMatchObject({ description: 'b', url: `https://stays.localhost:${after.httpsPort}` });
});

it('changes of one cloud endpoint at the same time do not undo each other', async () => {
  const { id } = await createHttp(answer(''));
  const host = freshName();
  const changes = [{ url: `http://${host}` }, { description: 'b' }, { traffic_policy: policyOf(answer('c')) }];
  await Promise.all(changes.map((change) => api.call('PATCH', `/endpoints/${id}`, change)));
  expect((await get(host)).body).toBe('c');
  expect((await api.call('GET', `/endpoints/${id}`)).body).toMatchObject({ host, description: 'b' });
});

describe('a cloud endpoint is refused', () => {
  const policy = policyOf(answer(''));
  const taken = freshName();
  beforeAll(async () => {
    await create(`https://${taken}`, policy);
    await api.call('POST', '/edges/tls', { hostports: ['edge.localhost:443'] });
    await session.httpEndpoint().domain('agents.localhost').listen(false);
  });

  it.each([
    ['a name that an agent has bound', { url: 'https://agents.localhost' }, 'ERR_NGROK_334'],
    ['a URL that another one has', { url: `https://${taken}` }, 'ERR_NGROK_18009'],
    ['pooling beside one without it', { url: `https://${taken}`, pooling_enabled: true }, 'ERR_NGROK_18016'],
    ['a name of a TLS edge', { url: 'https://edge.localhost' }, 'ERR_NGROK_18009'],
    ['a name that is not reserved', { url: 'https://free.example.org' }, 'ERR_NGROK_18006'],
    ['a wildcard that is not reserved', { url: 'https://*.localhost' }, 'ERR_NGROK_18006'],
    ['a name of the gateway', { url: 'https://api.localhost' }, 'ERR_NGROK_450'],
    ['a URL without a scheme', { url: 'app.localhost' }, 'ERR_NGROK_18022'],
    ['another scheme', { url: 'ftp://app.localhost' }, 'ERR_NGROK_332'],
    ['a path', { url: 'https://app.localhost/path' }, 'ERR_NGROK_9037'],
    ['another port', { url: 'https://app.localhost:8000' }, 'ERR_NGROK_9035'],
    ['a tcp address of another host', { url: 'tcp://tcp.localhost:20000' }, 'ERR_NGROK_307'],
    ['a port that is not for tcp endpoints', { url: 'tcp://localhost:80', traffic_policy: '{}' }, 'ERR_NGROK_307'],
    ['rules for requests at a tcp address', { url: 'tcp://' }, 'ERR_NGROK_2230'],
    ['an internal tcp endpoint without a port', { url: 'tcp://db.internal' }, 'ERR_NGROK_9035'],
    ['a binding that contradicts the URL', { bindings: ['internal'] }, 'ERR_NGROK_9029'],
    ['a binding that the gateway does not have', { bindings: ['kubernetes'] }, 'ERR_NGROK_15005'],
    ['no policy', { traffic_policy: undefined }, 'ERR_NGROK_18011'],
    ['an empty policy', { traffic_policy: ' ' }, 'ERR_NGROK_18011'],
    ['a policy with an error', { traffic_policy: policyOf({ type: 'no-such' }) }, 'ERR_NGROK_2201'],
    ['another type', { type: 'ephemeral' }, 'ERR_NGROK_18014'],
  ])('for %s', async (_, more, error_code) => {
    const body = { url: `https://${freshName()}`, traffic_policy: policy, ...more };
    expect(await api.call('POST', '/endpoints', body)).toMatchObject({ status: 400, body: { error_code } });
  });

  it('with another binding than the URL needs in an update', async () => {
    const { id } = await createHttp(answer(''));
    const changed = await api.call('PATCH', `/endpoints/${id}`, { bindings: ['internal'] });
    expect(changed).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_18014' } });
  });

  it('another scheme in an update', async () => {
    const { host, id } = await createHttp(answer(''));
    const changed = await api.call('PATCH', `/endpoints/${id}`, { url: `https://${host}` });
    expect(changed).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_18005' } });
  });
});

it('an agent cannot bind the URL of a cloud endpoint, pooled or not, nor share its port of TLS', async () => {
  const host = freshName();
  await create(`https://${host}`, policyOf(answer('cloud')), { pooling_enabled: true });
  for (const bind of [
    () => session.httpEndpoint().domain(host).poolingEnabled(true).listen(false),
    () => session.httpEndpoint().domain(host).listen(false),
    () => session.tlsEndpoint().domain(host).listen(false),
  ])
    await expect(bind()).rejects.toThrow(/cloud endpoint serves .*ERR_NGROK_334/s);
});

it('an endpoint of an agent cannot be changed or deleted by the API', async () => {
  const listener = await session.httpEndpoint().domain(freshName()).listen(false);
  const path = `/endpoints/${listener.id()}`;
  for (const [method, body] of [
    ['PATCH', {}],
    ['DELETE', undefined],
  ] as const)
    expect(await api.call(method, path, body)).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_18014' } });
});

it('a TLS edge cannot have a name of a cloud endpoint', async () => {
  const host = freshName();
  await create(`https://${host}`, policyOf(answer('')));
  const edge = await api.call('POST', '/edges/tls', { hostports: [`${host}:443`] });
  expect(edge).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_7132' } });
});

it.each(['kept.example.com', '*.kept.example.net'])(
  'the reserved domain %s stays while a cloud endpoint has a name of it',
  async (domain) => {
    const { body } = await api.call('POST', '/reserved_domains', { domain });
    const id = await create(`http://${domain.replace('*', 'app')}`, policyOf(answer('')));
    const remove = () => api.call('DELETE', `/reserved_domains/${body.id}`);
    expect(await remove()).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_446' } });
    await api.call('DELETE', `/endpoints/${id}`);
    expect((await remove()).status).toBe(204);
  },
);

describe('a policy that relies on what the gateway does not have', () => {
  const rule = (expression: string) => ({ expressions: [expression], actions: [{ type: 'deny' }] });
  const signIn = (config: object) => ({ actions: [{ type: 'gateway-sign-in', config }] });
  const send = (...rules: object[]) =>
    api.call('POST', '/endpoints', {
      url: `https://${freshName()}`,
      traffic_policy: JSON.stringify({ on_http_request: [...rules, { actions: [answer('hello')] }] }),
    });

  it.each([
    ['a person', signIn({ people: ['nobody@example.com'] }), /config\.people: nobody@example\.com may not come in/],
    ['a group', signIn({ groups: ['nobodies'] }), /config\.groups: nobodies let nobody in/],
    ['a location', rule("conn.geo.country_code != 'DE'"), /locations of addresses.*GATEWAY_GEO_DATABASE/],
    ['a location, in full', rule("conn.client_ip.geo.location.city == ''"), /GATEWAY_GEO_DATABASE/],
    ['a network', rule('conn.client_ip.as.number == 1'), /networks of addresses.*GATEWAY_ASN_DATABASE/],
  ])('is accepted with a warning about %s', async (_, broken, warning) => {
    const { status, body } = await send(broken);
    expect([status, body.policy_warnings]).toEqual([201, [expect.stringMatching(warning)]]);
    const read = await api.call('GET', `/endpoints/${body.id}`);
    expect(read.body).not.toHaveProperty('policy_warnings');
    const { traffic_policy } = read.body;
    const changed = await api.call('PATCH', `/endpoints/${body.id}`, { traffic_policy });
    expect(changed.body.policy_warnings).toEqual([expect.stringMatching(warning)]);
  });

  it('is accepted without a warning when they are there', async () => {
    await api.call('POST', '/people', { email: 'here@example.com', name: 'Here', groups: ['family'] });
    const { body } = await send(
      signIn({ people: ['Here@example.com'], groups: ['family'] }),
      rule("conn.client_ip == ''"),
    );
    expect(body).toMatchObject({ type: 'cloud' });
    expect(body).not.toHaveProperty('policy_warnings');
  });
});
