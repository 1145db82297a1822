import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { InspectionReport, RequestSummary } from '../../src/agent/api/inspection/inspection-reports.ts';
import { openLocalCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { getPublic, startTestGateway } from '../support/gateway.ts';
import { TestProxy } from '../support/proxies.ts';
import { selfSigned } from '../support/self-signed.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** A separate gateway, and an agent that only has its address. */
async function setUp() {
  const folder = temporaryFolder();
  const gateway = await startTestGateway();
  onTestFinished(async () => {
    await gateway.close();
  });
  const start = (env: Record<string, string>): AgentProcess => {
    const agent = AgentProcess.inTest(folder, {
      NGROK_AUTHTOKEN: gateway.authtoken,
      NGROK_SERVER_ADDR: gateway.sessionAddress,
      ...env,
    });
    return agent;
  };
  return { folder, gateway, start };
}

interface Status {
  session: { state: string; gateway: string; last_error: { message: string } | null };
}
const status = async (api: string) => (await (await fetch(`${api}/status`)).json()) as Status;

it('the agent works with a separate gateway, without the embedded one', async () => {
  const { folder, gateway, start } = await setUp();
  const agent = start({ NGROK_CA_CERT: gateway.caFile });
  const api = await agent.ready();
  expect((await status(api)).session).toMatchObject({ state: 'online', gateway: gateway.sessionAddress });
  const env = { AGENT_PORT: new URL(api).port };
  const { code, stdout } = await deviceAgent(['tunnels', 'start', '8001', '-d', 'mine.localhost'], folder, env);
  expect([code, stdout]).toEqual([0, `https://mine.localhost:${gateway.httpsPort} -> localhost:8001\n`]);
  expect(gateway.endpoints.list().map(({ host }) => host)).toEqual(['mine.localhost']);
  expect(JSON.stringify(agent.lines)).not.toContain(gateway.authtoken);
  expect(await agent.end()).toBe(0);
});

it('the agent refuses a gateway with a certificate of another CA, and names the certificate', async () => {
  const { folder, start } = await setUp();
  writeFileSync(join(folder, 'other.pem'), (await selfSigned()).cert);
  const agent = start({ NGROK_CA_CERT: 'other.pem' });
  const api = await agent.api();
  await vi.waitFor(async () => {
    expect((await status(api)).session).toMatchObject({
      state: 'connecting',
      last_error: {
        message: expect.stringMatching(
          /tls handshake error.*certificate presented at its address: CN=.*set NGROK_CA_CERT to a copy/,
        ),
      },
    });
  }, 20_000);
  const refused = await fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"protocol":"http","forwards_to":8001}',
  });
  expect(refused.status).toBe(503);
  expect(((await refused.json()) as { msg: string }).msg).toContain('tls handshake error');
});

it('the agent trusts the system’s CAs, directly and through a proxy', async () => {
  const { gateway, start } = await setUp();
  const env = { NGROK_CA_CERT: 'host', SSL_CERT_FILE: gateway.caFile };
  const straight = start(env);
  await straight.ready();
  await straight.end();
  const proxy = await TestProxy.http();
  const proxied = start({ ...env, https_proxy: `http://${proxy.address}` });
  await proxied.ready();
  expect(proxy.asked).toContain(gateway.sessionAddress);
  expect(await proxied.end()).toBe(0);
  const wary = start({ NGROK_CA_CERT: 'host', HTTPS_PROXY: `http://${proxy.address}` });
  const api = await wary.api();
  await vi.waitFor(async () => {
    expect((await status(api)).session.last_error?.message).toMatch(
      /certificate.*certificate presented at its address: CN=/,
    );
  }, 20_000);
});

it('the agent reaches its gateway through an https proxy', async () => {
  const { gateway, start } = await setUp();
  const ca = await openLocalCa(join(gateway.dataDir, 'gateway'), silentLog);
  const proxy = await TestProxy.http({ tls: await ca.issue(['127.0.0.1']) });
  const env = { NGROK_CA_CERT: gateway.caFile, HTTPS_PROXY: `https://${proxy.address}` };
  const api = await start(env).api();
  await vi.waitFor(async () => {
    expect((await status(api)).session.last_error?.message).toMatch(/proxy https:.* cannot connect .*certificate/);
  }, 20_000);
  const other = temporaryFolder();
  const trusting = start({ ...env, NODE_EXTRA_CA_CERTS: gateway.caFile, DATA_DIR: other });
  await trusting.ready();
  expect(proxy.asked).toContain(gateway.sessionAddress);
});

it.each([
  ['native', 'on'],
  ['sdk', 'unavailable'],
])(
  'with the connector %s, the reports of a separate gateway are %s, also in the next session',
  async (connector, reports) => {
    const { gateway, start } = await setUp();
    const agent = start({ NGROK_CA_CERT: gateway.caFile, AGENT_CONNECTOR: connector });
    const tunnels = `${await agent.ready()}/tunnels`;
    const send = (method: string, path: string, body: object) =>
      fetch(tunnels + path, {
        method,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    const read = async <T>(path: string) => (await (await fetch(`${tunnels}/cam/${path}`)).json()) as T;
    const policy = { on_http_request: [{ actions: [{ type: 'deny' }] }] };
    await send('POST', '', { forwards_to: 8001, domain: 'cam.localhost', policy });
    await send('PUT', '/cam/inspection', {});
    const denied = async (path: string) => {
      const { status } = await getPublic(gateway, `https://cam.localhost:${gateway.httpsPort}${path}`);
      return status === 403;
    };
    const states = async () => (await read<InspectionReport>('inspection')).gateway_reports;
    const isShown = async (path: string) => (await read<RequestSummary[]>(`requests?path=${path}`)).length > 0;
    await vi.waitFor(async () => expect(await states()).toBe(reports), 60_000);
    expect(await denied('/first')).toBe(true);
    if (reports === 'on') await vi.waitFor(async () => expect(await isShown('/first')).toBe(true), 60_000);
    for (const session of gateway.sessions.sessions) session.end(new Error('the test ends it'));
    await agent.logged('session lost');
    await vi.waitFor(async () => {
      expect(await denied('/next')).toBe(true);
      expect([await states(), await isShown('/next')]).toEqual([reports, reports === 'on']);
    }, 60_000);
  },
);
