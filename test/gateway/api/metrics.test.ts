import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer } from 'node:net';
import { text } from 'node:stream/consumers';
import ngrok, { type Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';

let gateway: TestGateway;
let apiKey: string;
let session: Session;
const site = createServer((req, res) => res.writeHead(Number(req.url?.slice(1)) || 200).end('here'));
const echo = createTcpServer((socket) => socket.on('error', () => {}).pipe(socket));

beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(1), probes: ['probed.localhost', 'denying.localhost'] });
  apiKey = (await gateway.store.database.write(() => issueApiKey(gateway.store, {}))).token;
  for (const server of [site, echo]) await once(server.listen(0, '127.0.0.1'), 'listening');
  session = await agentSession(gateway).connect();
});

afterAll(async () => {
  await session.close();
  await gateway.close();
  for (const server of [site, echo]) server.close();
});

const portOf = (server: typeof echo) => (server.address() as AddressInfo).port;

/** Starts an SDK endpoint for the site. */
async function serve(name: string, policy: object = {}, port = portOf(site)): Promise<string> {
  const builder = session.httpEndpoint().domain(`${name}.localhost`).trafficPolicy(JSON.stringify(policy));
  const listener = await builder.listen(false);
  // Settles when the listener ends, which does not matter here.
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  return String(listener.url());
}

/** Requests the metrics like Prometheus, which only sends the API key. */
async function scrape(authorization: string | null = `Bearer ${apiKey}`) {
  const { host, hostname } = new URL(gateway.apiUrl);
  const at = { host: '127.0.0.1', port: gateway.httpsPort, servername: hostname, path: '/metrics' };
  const headers = { host, ...(authorization !== null && { authorization }) };
  const req = request({ ...at, ca: gateway.sessionCa, agent: false, headers }).end();
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  return { status: res.statusCode, type: res.headers['content-type'], body: await text(res) };
}

/** The value of a sample, for example `sessions` or `responses_total{class="2xx"}`; undefined if absent. */
async function read(sample: string): Promise<number | undefined> {
  const prefix = `device_agent_gateway_${sample} `;
  const line = (await scrape()).body.split('\n').find((each) => each.startsWith(prefix));
  return line === undefined ? undefined : Number(line.slice(prefix.length));
}

/** Polls for values that the gateway updates a moment later. */
async function becomes(sample: string, value: number): Promise<void> {
  await expect.poll(() => read(sample), { interval: 20 }).toBe(value);
}

/** By how much an action increases the samples. */
async function growth(samples: readonly string[], act: () => Promise<unknown>): Promise<number[]> {
  const values = async () => {
    const all: number[] = [];
    for (const sample of samples) all.push((await read(sample)) ?? 0);
    return all;
  };
  const before = await values();
  await act();
  return (await values()).map((value, at) => value - (before[at] ?? 0));
}

describe('GET /metrics', () => {
  it('counts endpoints that are asked as clients do by the stage that broke', async () => {
    await serve('probed');
    await serve('denying', { on_http_request: [{ actions: [{ type: 'deny' }] }] });
    await expect.poll(() => read('probed_endpoints{stage="policy"}'), { interval: 100, timeout: 20_000 }).toBe(1);
    await expect.poll(() => read('probed_endpoints{stage="none"}'), { interval: 100, timeout: 20_000 }).toBe(1);
    expect(await read('probed_endpoints{stage="certificate"}')).toBe(0);
  });

  it('requires an API key but no version', async () => {
    const { status, type, body } = await scrape();
    expect(status).toBe(200);
    expect(type).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(body).toContain('process_resident_memory_bytes ');
    for (const wrong of [null, 'Bearer nonsense', `Bearer ${apiKey}x`, `Bearer ${gateway.authtoken}`]) {
      const refused = await scrape(wrong);
      expect([wrong, refused.status, refused.body.includes('device_agent')]).toEqual([wrong, 403, false]);
    }
  });
});

describe('the metrics of agents', () => {
  it('count endpoints by protocol until they are closed', async () => {
    expect(await read('sessions')).toBe(1);
    const secure = await growth(['endpoints{protocol="https"}'], () => serve('counted'));
    expect(secure).toEqual([1]);
    const labeled = await session.labeledListener().label('site', 'a').listen(false);
    expect(await read('labeled_tunnels')).toBe(1);
    await labeled.close();
    await becomes('labeled_tunnels', 0);
    const other = await agentSession(gateway).connect();
    expect(await read('sessions')).toBe(2);
    // After close(), the SDK sends nothing, and the gateway waits for a heartbeat.
    await other.close();
    for (const each of [...gateway.sessions.sessions].slice(1)) each.end(new Error('closed by the test'));
    await becomes('sessions', 1);
  });

  it('count refusals by error code', async () => {
    const grown = await growth(['binds_refused_total{code="ERR_NGROK_319"}'], async () => {
      await expect(session.httpEndpoint().domain('elsewhere.example').listen(false)).rejects.toThrow('319');
      const refused = new ngrok.SessionBuilder()
        .authtoken('2x_nobody')
        .serverAddr(gateway.sessionAddress)
        .caCert(Buffer.from(gateway.sessionCa))
        .handleDisconnection(() => false);
      await expect(refused.connect()).rejects.toThrow();
    });
    expect(grown).toEqual([1]);
    expect((await scrape()).body).toMatch(/device_agent_gateway_sessions_refused_total\{code="ERR_NGROK_\d+"\} 1\n/);
  });
});

describe('the metrics of traffic', () => {
  it('count responses to clients by status class', async () => {
    const url = await serve('statuses');
    const classes = ['2xx', '3xx', '4xx', '5xx'].map((name) => `responses_total{class="${name}"}`);
    const grown = await growth(classes, async () => {
      for (const status of [200, 200, 301, 404, 503]) await getPublic(gateway, `${url}/${status}`);
      await getPublic(gateway, `https://nobody.localhost:${gateway.httpsPort}/`);
    });
    // The test's own management requests, answered with 200, are not counted.
    expect(grown).toEqual([2, 1, 2, 1]);
  });

  it('count policy refusals and upstream failures', async () => {
    const closed = await serve('closed', {
      on_http_request: [{ actions: [{ type: 'deny', config: { status_code: 403 } }] }],
    });
    const open = await serve('greeting', {
      on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 200 } }] }],
    });
    const broken = await serve('broken', {}, (await freePorts(1)).first);
    const samples = ['policy_refusals_total', 'upstream_failures_total'];
    expect(await growth(samples, () => getPublic(gateway, closed))).toEqual([1, 0]);
    expect(await growth(samples, () => getPublic(gateway, open))).toEqual([0, 0]);
    expect(await growth(samples, () => getPublic(gateway, broken))).toEqual([0, 1]);
  });

  it('count open connections', async () => {
    const listener = await session.tcpEndpoint().listen(false);
    listener.forward(`tcp://127.0.0.1:${portOf(echo)}`).catch(() => {});
    const socket = connect(Number(new URL(String(listener.url())).port), '127.0.0.1');
    socket.write('there?');
    await once(socket, 'data');
    expect(await read('connections{kind="tcp"}')).toBe(1);
    socket.destroy();
    await becomes('connections{kind="tcp"}', 0);
    // The connection of the scrape itself.
    expect(await read('connections{kind="https"}')).toBeGreaterThanOrEqual(1);
  });
});

describe('other metrics', () => {
  it('show certificate states and the next expiry', async () => {
    const client = await GatewayClient.of(gateway);
    expect(await read('certificate_expiry_seconds')).toBeUndefined();
    const notAfter = new Date(Date.now() + 10 * 86_400_000);
    const issued = await issueCertificate({ subject: 'CN=cam.example.com', names: ['cam.example.com'], notAfter });
    const uploaded = await client.call('POST', '/tls_certificates', {
      certificate_pem: issued.certificatePem,
      private_key_pem: issued.privateKeyPem,
    });
    expect(uploaded.status).toBe(201);
    const reserve = (body: object) => client.call('POST', '/reserved_domains', body);
    expect((await reserve({ domain: 'bare.example.com' })).status).toBe(201);
    expect((await reserve({ domain: 'cam.example.com', certificate_id: uploaded.body.id })).status).toBe(201);
    expect(await read('domains{certificate="uploaded"}')).toBe(1);
    expect(await read('domains{certificate="none"}')).toBe(1);
    const seconds = Number(await read('certificate_expiry_seconds'));
    expect(seconds).toBeGreaterThan(9 * 86_400);
    expect(seconds).toBeLessThanOrEqual(10 * 86_400);
  });

  it('count requests to the management API by route', async () => {
    const client = await GatewayClient.of(gateway);
    const samples = [
      'api_requests_total{method="GET",route="/reserved_domains/:id",status="404"}',
      'api_requests_total{method="OTHER",route="none",status="404"}',
    ];
    const grown = await growth(samples, async () => {
      await client.call('GET', '/reserved_domains/rd_0');
      await client.call('GET', '/made/up');
    });
    expect(grown).toEqual([1, 1]);
  });
});
