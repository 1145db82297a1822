// Pictures of the gateway's dashboard, for screenshots.js: a gateway with two sites, of which one is fine.
import { execFile, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const CLI = fileURLToPath(new URL('../dist/cli.js', import.meta.url));
const DOMAIN = 'gateway.localhost';
const run = promisify(execFile);

/**
 * Starts a program and waits for a log message.
 *
 * @param {string[]} args
 * @param {string} folder
 * @param {Record<string, string>} env
 * @param {string} wanted
 */
async function start(args, folder, env, wanted) {
  const child = spawn(process.execPath, [CLI, ...args], {
    cwd: folder,
    env: { PATH: process.env.PATH, LOG_FORMAT: 'json', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  /** @type {Record<string, string>} */
  const urls = {};
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith('{')) continue;
    const { msg, url } = JSON.parse(line);
    urls[msg] = url;
    if (msg === wanted) break;
  }
  child.stdout.resume();
  const stop = async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  };
  return { urls, stop };
}

/** A resolver that knows no name, so that certificates wait for their DNS records. */
async function startResolver() {
  const socket = createSocket('udp4');
  socket.on('message', (query, { port, address }) => {
    query.writeUInt16BE(0x8183, 2);
    socket.send(query, port, address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return { address: `127.0.0.1:${socket.address().port}`, close: () => socket.close() };
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  server.close();
  await once(server, 'close');
  return port;
}

/**
 * Takes all pictures of the dashboard.
 *
 * @typedef {(name: string, url: string, act: (page: import('playwright-core').Page) => Promise<unknown>) => Promise<void>} Take
 * @param {{ picture: Take, forDocs: Take }} take
 * @param {number} upstream a port with an HTTP server
 */
export async function dashboardPictures({ picture, forDocs }, upstream) {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-screenshots-'));
  const resolver = await startResolver();
  const httpsPort = await freePort();
  const env = {
    GATEWAY_DOMAIN: DOMAIN,
    GATEWAY_HTTPS_PORT: String(httpsPort),
    GATEWAY_HTTP_PORT: '0',
    GATEWAY_SESSION_PORT: '0',
    // Nobody answers there: DNS is checked before.
    GATEWAY_ACME_DIRECTORY: 'https://127.0.0.1:9/directory',
    GATEWAY_DNS_RESOLVERS: resolver.address,
  };
  const gateway = await start(['gateway'], folder, env, 'gateway listening');
  const key = (
    await run(process.execPath, [CLI, 'gateway', 'api-key', 'create'], { cwd: folder, env: { ...process.env, ...env } })
  ).stdout.match(/\S+_\S+/)?.[0];
  const origin = `https://api.${DOMAIN}:${httpsPort}`;
  /** @type {(path: string, body?: object) => Promise<any>} */
  const call = async (path, body) => {
    const asked = request({
      host: '127.0.0.1',
      port: httpsPort,
      servername: `api.${DOMAIN}`,
      path,
      method: body ? 'POST' : 'GET',
      rejectUnauthorized: false,
      headers: {
        host: `api.${DOMAIN}:${httpsPort}`,
        authorization: `Bearer ${key}`,
        'service-version': '2',
        'content-type': 'application/json',
      },
    });
    const [answer] = await once(asked.end(body && JSON.stringify(body)), 'response');
    const found = JSON.parse(await text(answer));
    if (answer.statusCode >= 300) throw new Error(`${path}: ${found.msg}`);
    return found;
  };
  /** @type {{ stop: () => Promise<void> }[]} */
  const devices = [];
  /** @type {(name: string, code: string) => Promise<string>} */
  const joinAs = async (name, code) => {
    const place = join(folder, name);
    mkdirSync(place);
    const device = await start(
      ['join', code, '--name', name, '--no-service'],
      place,
      { AGENT_PORT: '0', AGENT_CONNECTOR: 'native' },
      'remote API online',
    );
    devices.push(device);
    return String(device.urls['local API listening']);
  };
  try {
    const { code } = await call('/enrolment_keys', { site: `*.harbour.${DOMAIN}`, max_uses: 50 });
    const api = await joinAs('cabinet-1', code);
    const hosts = [];
    for (const domain of ['camera', 'barrier']) {
      const answer = await fetch(`${api}/tunnels`, {
        method: 'POST',
        body: JSON.stringify({ forwards_to: upstream, domain }),
        headers: { 'content-type': 'application/json' },
      });
      if (!answer.ok) throw new Error(await answer.text());
      hosts.push(new URL(/** @type {{ url: string }} */ (await answer.json()).url).hostname);
    }
    const [host = ''] = hosts;
    for (let count = 0; count < 12; count += 1) {
      const asked = request({ host: '127.0.0.1', port: httpsPort, servername: host, rejectUnauthorized: false });
      asked.setHeader('host', `${host}:${httpsPort}`);
      const [answer] = await once(asked.end(), 'response');
      await text(answer);
    }
    await joinAs('cabinet-2', code);
    await devices[1]?.stop();
    const site = await call('/reserved_domains', {
      domain: '*.quarry.example.com',
      certificate_management_policy: { private_key_type: 'ecdsa' },
      description: 'Quarry, since March',
    });
    await call('/reserved_domains', { domain: 'status.example.com', description: 'Status page' });
    const cameras = await call('/backends/tunnel_group', {
      labels: { app: 'camera' },
      description: 'All cameras',
    });
    const policy = await call('/ip_policies', { description: 'Control room' });
    await call('/ip_policy_rules', { ip_policy_id: policy.id, cidr: '203.0.113.0/24', action: 'allow' });
    const edge = await call('/edges/tls', {
      description: 'Cameras of the quarry',
      hostports: ['cams.quarry.example.com:443'],
      backend: { backend_id: cameras.id },
      ip_restriction: { ip_policy_ids: [policy.id] },
      tls_termination: { terminate_at: 'edge', min_version: '1.3' },
    });
    /** @type {(view: string, act: (page: import('playwright-core').Page) => Promise<unknown>) => (page: import('playwright-core').Page) => Promise<void>} */
    const view = (path, act) => async (page) => {
      await page.getByLabel('API key', { exact: true }).fill(String(key));
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('Live', { exact: true }).waitFor();
      await page.goto(`${origin}/#/${path}`);
      await act(page);
    };
    const shows = (/** @type {string | RegExp} */ words) => (/** @type {import('playwright-core').Page} */ page) =>
      page.getByText(words).filter({ visible: true }).first().waitFor();
    await forDocs('dashboard', origin, view('', shows('cabinet-2 is offline')));
    await forDocs('dashboard-edge', origin, view(`edges/${edge.id}`, shows('Oldest TLS version: 1.3')));
    await picture('dashboard-overview', origin, view('', shows('cabinet-2 is offline')));
    await picture('dashboard-devices', origin, view('devices', shows('cabinet-1')));
    await picture('dashboard-endpoints', origin, view('endpoints', shows(host)));
    await picture('dashboard-history', origin, view('history?range=hour', shows('A gateway ran')));
    await picture('dashboard-domains', origin, view('domains', shows('status.example.com')));
    await picture('dashboard-domain', origin, view(`domains/${site.id}`, shows('DNS_ERROR')));
    await picture('dashboard-edge', origin, view(`edges/${edge.id}`, shows('Oldest TLS version: 1.3')));
    await picture('dashboard-add-site', origin, async (page) => {
      await view(`add-site/${site.id}`, shows('is reserved'))(page);
      await page.getByRole('button', { name: 'Check DNS' }).click();
      await page.getByRole('button', { name: 'Create code' }).click();
      await page.locator('.qr path[d^=M]').waitFor();
      await page.evaluate('window.scrollTo(0, 0)');
    });
    await picture('dashboard-delete', origin, view(`domains/${site.id}/delete`, shows('go offline at once')));
    await picture('dashboard-empty', origin, view('authorities', shows('No client CAs yet')));
    await picture('dashboard-menu', origin, async (page) => {
      await view('domains', shows('status.example.com'))(page);
      const menu = page.getByRole('button', { name: /^Menu/ });
      if (await menu.isVisible()) await menu.click();
    });
  } finally {
    await Promise.all([...devices, gateway].map((each) => each.stop()));
    resolver.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
