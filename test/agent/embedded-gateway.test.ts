import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { ManagementClient } from '../../src/management/client.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { getPublic } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

/** The embedded gateway equals the standalone one, including accounts and API. */
describe('the embedded gateway', () => {
  const folder = sharedFolder();
  let agent: AgentProcess;
  let apiKey: string | undefined;
  let client: ManagementClient;
  let ca: string;

  const start = async () => {
    agent = AgentProcess.start(folder);
    const api = await agent.ready();
    apiKey ??= (await deviceAgent(['gateway', 'api-key', 'create'], folder)).stdout.trim();
    const status = await (await fetch(`${api}/status`)).json();
    const { gateway_api: baseUrl, gateway_ca: caFile } = (status as { addresses: Record<string, string> }).addresses;
    ca = readFileSync(String(caFile), 'utf8');
    client = new ManagementClient({ baseUrl: String(baseUrl), apiKey, ca });
  };

  const onlineHosts = async () => (await client.endpoints.list()).items.map(({ host }) => host).sort();

  beforeAll(async () => {
    await start();
  });
  afterAll(async () => {
    await agent.end();
  });

  it('creates a bot user and an authtoken at the first start, which the agent uses', async () => {
    const [bot, ...otherBots] = (await client.botUsers.list()).items;
    const [credential, ...otherCredentials] = (await client.credentials.list()).items;
    expect([otherBots, otherCredentials]).toEqual([[], []]);
    expect(bot).toMatchObject({ name: 'embedded agent', active: true });
    expect(credential).toMatchObject({ owner_id: bot?.id, acl: [], token: null });
    const [session] = (await client.tunnelSessions.list()).items;
    expect(session).toMatchObject({ credential: { id: credential?.id }, ip: '127.0.0.1' });
    const own = (await client.endpoints.list()).items.find(({ host }) => host === 'agent.localhost');
    expect(own).toMatchObject({ host: 'agent.localhost', tunnel_session: { id: session?.id } });
  });

  it('refuses domains that are not reserved, and accepts them once they are', async () => {
    const post = async () => {
      const body = JSON.stringify({ protocol: 'http', forwards_to: '1', domain: 'cam.example.com' });
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(`${await agent.api()}/tunnels`, { method: 'POST', headers, body });
      return (await answer.json()) as object;
    };
    expect(await post()).toMatchObject({ error_code: 'ERR_NGROK_319' });
    await client.reservedDomains.create({ domain: '*.example.com' });
    expect(await post()).toMatchObject({ domain: 'cam.example.com' });
  });

  it('counts what the SDK carries past the agent', async () => {
    const upstream = await startHttpService((_, res) => void res.end('hello'));
    onTestFinished(() => upstream.close());
    const api = await agent.api();
    const body = JSON.stringify({ protocol: 'http', forwards_to: upstream.url });
    const headers = { 'content-type': 'application/json' };
    const { url } = (await (await fetch(`${api}/tunnels`, { method: 'POST', headers, body })).json()) as {
      url: string;
    };
    const tunnel = `${api}/tunnels/${new URL(url).hostname.split('.')[0]}`;
    const traffic = async () => ((await (await fetch(tunnel)).json()) as { traffic: unknown }).traffic;
    expect(await traffic()).toMatchObject({ requests: 0, last_at: null });
    const port = Number(new URL(url).port);
    const began = new Date().toISOString();
    expect((await getPublic({ httpsPort: port, sessionCa: ca }, url)).body).toBe('hello');
    const counted = (await traffic()) as Record<'bytes_in' | 'bytes_out', number> & { last_at: string };
    expect(counted).toMatchObject({ requests: 1 });
    expect(Math.min(counted.bytes_in, counted.bytes_out)).toBeGreaterThan(50);
    expect(counted.last_at >= began).toBe(true);
    await fetch(tunnel, { method: 'DELETE' });
  });

  it('keeps its bot user across a restart, and replaces the authtoken', async () => {
    const [bot] = (await client.botUsers.list()).items;
    const [credential] = (await client.credentials.list()).items;
    const hosts = await onlineHosts();
    await agent.end();
    await start();
    expect((await client.botUsers.list()).items).toEqual([
      { ...bot, uri: expect.stringContaining(`/bot_users/${bot?.id}`) },
    ]);
    const [replaced, ...others] = (await client.credentials.list()).items;
    expect(others).toEqual([]);
    expect(replaced?.id).not.toBe(credential?.id);
    await expect.poll(onlineHosts).toEqual(hosts);
  });

  it('takes the agent offline when its bot user is deactivated, until it is active again', async () => {
    const [bot] = (await client.botUsers.list()).items;
    const id = String(bot?.id);
    const api = await agent.api();
    const hosts = await onlineHosts();
    await client.botUsers.update(id, { active: false });
    expect((await client.endpoints.list()).items).toEqual([]);
    await expect.poll(async () => (await fetch(`${api}/readyz`)).status).toBe(503);
    await client.botUsers.update(id, { active: true });
    await agent.ready();
    expect(await onlineHosts()).toEqual(hosts);
  });
});
