import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { getPublic } from '../support/gateway.ts';
import { listening } from '../support/loopback.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

/** Gateway, operator and device run as separate processes that share only what the commands print. */
describe('a standalone gateway, from the first start to a tunnel', { shuffle: false }, () => {
  const root = sharedFolder();
  const folder = (name: string) => {
    const path = join(root, name);
    mkdirSync(path, { recursive: true });
    return path;
  };
  let gateway: AgentProcess;
  let up: Record<string, unknown>;
  let upstream: Server;
  let device: AgentProcess;
  let operator: Record<string, string>;
  let firstRun: string;

  const startGateway = async (env: Record<string, string> = {}) => {
    gateway = AgentProcess.start(folder('gateway'), env, ['gateway']);
    up = await gateway.logged('gateway listening');
  };
  const setup = (...args: string[]) =>
    deviceAgent(['setup', '--domain', '*.sitea.example.com', '--bot', 'site A', ...args], folder('laptop'), operator);
  const visit = (domain: string) => {
    const sessionCa = readFileSync(join(folder('gateway'), 'data/gateway/ca.pem'), 'utf8');
    return getPublic({ httpsPort: Number(up.https), sessionCa }, `https://${domain}/`);
  };

  beforeAll(async () => {
    upstream = createServer((_req, res) => res.end('the camera'));
    await listening(upstream);
    await startGateway();
  });
  afterAll(async () => {
    await device?.end();
    await gateway.end();
    upstream.close();
  });

  it('logs at the first start how to create an API key', async () => {
    const { command } = await gateway.logged('no API key yet; create one');
    expect((await deviceAgent(String(command).split(' ').slice(1), folder('gateway'))).stdout).toMatch(
      /^\w{27}_\w+\n$/,
    );
  });

  it('setup creates a site with an API key that was created while the gateway runs', async () => {
    const made = await deviceAgent(['gateway', 'api-key', 'create', '--description', 'laptop'], folder('gateway'));
    expect(made.stdout).toMatch(/^\w{27}_\w+\n$/);
    operator = {
      MANAGEMENT_API_URL: String(up.api),
      MANAGEMENT_API_KEY: made.stdout.trim(),
      MANAGEMENT_API_CA_CERT: join(folder('gateway'), 'data/gateway/ca.pem'),
      NGROK_SERVER_ADDR: String(up.agents),
      NGROK_CA_CERT: '../gateway/data/gateway/ca.pem',
    };
    const { code, stdout, stderr } = await setup('--no-wait');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ {2}\*\.sitea\.example\.com\. 300 IN CNAME \S+$/m);
    expect(stdout).toMatch(/^ {2}_acme-challenge\.sitea\.example\.com\. 300 IN CNAME \S+$/m);
    firstRun = stdout;
  });

  it('an agent with the printed .env lines opens a tunnel', async () => {
    const lines = firstRun.slice(firstRun.indexOf('.env:') + 5);
    expect(lines.trim().split('\n')).toEqual([
      expect.stringMatching(/^NGROK_AUTHTOKEN=\w{27}_\w+$/),
      `NGROK_SERVER_ADDR=${up.agents}`,
      'NGROK_CA_CERT=../gateway/data/gateway/ca.pem',
      'AGENT_DOMAIN=agent.sitea.example.com',
    ]);
    writeFileSync(join(folder('device'), '.env'), lines);
    device = AgentProcess.start(folder('device'));
    const api = await device.ready();
    const { port } = upstream.address() as AddressInfo;
    const post = (domain: string) =>
      fetch(`${api}/tunnels`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ protocol: 'http', forwards_to: String(port), domain }),
      });
    expect(await (await post('cam.sitea.example.com')).json()).toMatchObject({
      url: `https://cam.sitea.example.com:${up.https}`,
    });
    expect(await visit('cam.sitea.example.com')).toMatchObject({ status: 200, body: 'the camera' });
    // The authtoken may not bind another site's domain.
    expect(await (await post('cam.siteb.example.com')).json()).toMatchObject({ error_code: 'ERR_NGROK_316' });
  });

  it('setup names the setting to change when the gateway’s CA is unknown', async () => {
    const { code, stderr } = await deviceAgent(
      ['setup', '--domain', 'a.example.com', '--bot', 'b'],
      folder('laptop'),
      // The system resolves this name, so that only the CA is wrong.
      { MANAGEMENT_API_URL: `https://localhost:${up.https}`, MANAGEMENT_API_KEY: 'a_b', NGROK_SERVER_ADDR: 'a.test:1' },
    );
    expect(code).toBe(3);
    expect(stderr).toMatch(/set MANAGEMENT_API_CA_CERT to .* or remove it if a public CA/);
  });

  it('a killed gateway restarts with all its data, and the agent reconnects', async () => {
    await gateway.end('SIGKILL');
    const seen = device.lines.length;
    await startGateway({ GATEWAY_HTTPS_PORT: String(up.https) });
    await device.logged('session online', seen);
    await device.ready();
    expect(await visit('cam.sitea.example.com')).toMatchObject({ status: 200, body: 'the camera' });
    expect((await setup('--no-wait')).stdout).toMatch(/^authtoken +cr_\w+ exists from an earlier run/m);
  });
});
