import { once } from 'node:events';
import { createServer, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { listening } from '../support/loopback.ts';

/** An address of this machine that is not exempt. */
const ALLOWED = '127.0.0.7';
const OTHER = '127.0.0.8';

let gateway: TestGateway;
let api: GatewayClient;
let apiKey: string;
let policyId: string;
const upstream = createServer((_req, res) => void res.end('inside'));
beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(1) });
  api = await GatewayClient.of(gateway);
  apiKey = (await gateway.store.database.write(() => issueApiKey(gateway.store, {}))).token;
  policyId = String((await api.call('POST', '/ip_policies', {})).body.id);
  const rule = { ip_policy_id: policyId, action: 'allow', cidr: `${ALLOWED}/32` };
  expect((await api.call('POST', '/ip_policy_rules', rule)).status).toBe(201);
});
afterEach(async () => {
  const { body } = await api.call('GET', '/ip_restrictions');
  for (const { id } of body.ip_restrictions as { id: string }[]) await api.call('DELETE', `/ip_restrictions/${id}`);
});
afterAll(async () => {
  await gateway.close();
  upstream.close();
});

async function restrict(type: string, more = {}) {
  const { status, body } = await api.call('POST', '/ip_restrictions', {
    ...{ type, enforced: true, ip_policy_ids: [policyId] },
    ...more,
  });
  expect(status).toBe(201);
  return String(body.id);
}

interface Sent {
  headers?: Record<string, string>;
  method?: string;
  body?: object;
}

/** A request over HTTPS from an address of this machine. */
async function askFrom(
  localAddress: string,
  host: string,
  path: string,
  { headers = {}, method = 'GET', body }: Sent = {},
) {
  const req = requestHttps({
    ...{ host: '127.0.0.1', port: gateway.httpsPort, localAddress, servername: host, ca: gateway.sessionCa },
    ...{ path, method, agent: false, headers: { host: `${host}:${gateway.httpsPort}`, ...headers } },
    checkServerIdentity: () => undefined,
  });
  req.end(body && JSON.stringify(body));
  const [res] = (await once(req, 'response')) as [IncomingMessage];
  return { status: res.statusCode, headers: res.headers, body: await text(res) };
}

const callFrom = async (address: string) => {
  const headers = { authorization: `Bearer ${apiKey}`, 'service-version': '2' };
  return askFrom(address, 'api.localhost', '/bot_users', { headers });
};

it('an IP restriction of the API refuses other addresses, when it is enforced, and never 127.0.0.1', async () => {
  const id = await restrict('api', { enforced: false });
  expect((await callFrom(OTHER)).status).toBe(200);
  await api.call('PATCH', `/ip_restrictions/${id}`, { enforced: true, ip_policy_ids: [] });
  expect((await callFrom(ALLOWED)).status).toBe(200);
  const refused = await callFrom(OTHER);
  expect([refused.status, JSON.parse(refused.body).error_code]).toEqual([403, 'ERR_NGROK_220']);
  expect((await callFrom('127.0.0.1')).status).toBe(200);
});

it('a changed rule applies to the next request', async () => {
  await restrict('api');
  expect((await callFrom(OTHER)).status).toBe(403);
  const rule = { ip_policy_id: policyId, action: 'allow', cidr: `${OTHER}/32` };
  const { body } = await api.call('POST', '/ip_policy_rules', rule);
  expect((await callFrom(OTHER)).status).toBe(200);
  await api.call('DELETE', `/ip_policy_rules/${body.id}`);
  expect((await callFrom(OTHER)).status).toBe(403);
});

it('an IP restriction of the dashboard refuses to sign in, and sessions, from other addresses', async () => {
  const signIn = (address: string) =>
    askFrom(address, 'api.localhost', '/dashboard/session', {
      method: 'POST',
      body: { api_key: apiKey },
      headers: { 'content-type': 'application/json', origin: `https://api.localhost:${gateway.httpsPort}` },
    });
  const cookie = String((await signIn(OTHER)).headers['set-cookie']?.[0]?.split(';')[0]);
  const look = (address: string) => askFrom(address, 'api.localhost', '/dashboard/overview', { headers: { cookie } });
  expect((await look(OTHER)).status).toBe(200);
  await restrict('dashboard');
  for (const answer of [await signIn(OTHER), await look(OTHER)])
    expect([answer.status, JSON.parse(answer.body).error_code]).toEqual([403, 'ERR_NGROK_1212']);
  expect((await look(ALLOWED)).status).toBe(200);
  expect((await callFrom(OTHER)).status).toBe(200);
});

it('an IP restriction of agents ends and refuses their sessions, also when a rule of its changes', async () => {
  const rule = { ip_policy_id: policyId, action: 'allow', cidr: '127.0.0.1/32' };
  const { body } = await api.call('POST', '/ip_policy_rules', rule);
  await restrict('agent');
  const before = [...gateway.sessions.sessions].length;
  await agentSession(gateway).connect();
  expect([...gateway.sessions.sessions]).toHaveLength(before + 1);
  await api.call('DELETE', `/ip_policy_rules/${body.id}`);
  expect([...gateway.sessions.sessions]).toEqual([]);
  await expect(agentSession(gateway).connect()).rejects.toThrow(/ERR_NGROK_115/);
});

describe('an IP restriction of endpoints', () => {
  it('answers requests from other addresses with 403, also on open connections', async () => {
    const traffic_policy = '{"on_http_request":[{"actions":[{"type":"custom-response","config":{"body":"inside"}}]}]}';
    const url = 'https://restricted.localhost';
    expect((await api.call('POST', '/endpoints', { url, traffic_policy })).status).toBe(201);
    const ask = (address: string) => askFrom(address, 'restricted.localhost', '/');
    expect((await ask(OTHER)).body).toBe('inside');
    await restrict('endpoints');
    expect(await ask(OTHER)).toMatchObject({ status: 403, headers: { 'ngrok-error-code': 'ERR_NGROK_3205' } });
    expect((await ask(ALLOWED)).body).toBe('inside');
  });

  it('closes tcp and tls connections and those of TLS edges from other addresses', async () => {
    const session = await agentSession(gateway).connect();
    const to = `127.0.0.1:${await listening(upstream)}`;
    const tcp = await session.tcpEndpoint().listen(false);
    tcp.forward(to).catch(() => {});
    const { body: backend } = await api.call('POST', '/backends/http_response', { body: 'inside' });
    const edge = { hostports: ['edge.localhost:443'], backend: { backend_id: backend.id } };
    await api.call('POST', '/edges/tls', edge);
    const port = Number(new URL(tcp.url() ?? '').port);
    const overTcp = (localAddress: string) => connect({ host: '127.0.0.1', port, localAddress });
    const overTls = (localAddress: string) =>
      connectTls({
        socket: connect({ host: '127.0.0.1', port: gateway.httpsPort, localAddress }),
        servername: 'edge.localhost',
        rejectUnauthorized: false,
      });
    await restrict('endpoints');
    for (const open of [overTcp, overTls]) {
      const ask = (address: string) =>
        new Promise<string>((resolve, reject) => {
          requestHttp({ createConnection: () => open(address), headers: { host: 'edge.localhost' } }, (res) =>
            resolve(text(res)),
          )
            .on('error', reject)
            .end();
        });
      expect(await ask(ALLOWED)).toBe('inside');
      await expect(ask(OTHER)).rejects.toThrow();
    }
  });
});

it.each([
  [{ type: 'nowhere' }, 'ERR_NGROK_1803'],
  [{ ip_policy_ids: [] }, 'ERR_NGROK_1804'],
  [{ ip_policy_ids: ['ipp_1'] }, 'ERR_NGROK_1801'],
  [{ type: 'agent' }, 'ERR_NGROK_1802'],
])('POST /ip_restrictions refuses %j', async (more, error_code) => {
  await restrict('agent', { enforced: false });
  const valid = { type: 'api', ip_policy_ids: [policyId] };
  const refused = await api.call('POST', '/ip_restrictions', { ...valid, ...more });
  expect(refused).toMatchObject({ status: 400, body: { error_code } });
});

it('an IP policy that a restriction names cannot be deleted', async () => {
  await restrict('api', { enforced: false });
  const refused = await api.call('DELETE', `/ip_policies/${policyId}`);
  expect(refused).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_1420' } });
});
