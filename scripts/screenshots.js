// npm run screenshots: pictures of the pages, from the built product with Chromium. Those that the documentation shows go to
// docs/images, all others to build/screenshots. CHROMIUM names another browser.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { buildIfStale } from './build.js';
import { dashboardPictures } from './dashboard-screenshots.js';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const OUTPUT = join(ROOT, 'build/screenshots');
const PHONE = { width: 390, height: 844 };
const DESKTOP = { width: 1100, height: 880 };
// Playwright's 30 s are too short on a busy machine.
const TIMEOUT_MS = 120_000;

/**
 * Starts an agent in a folder of its own.
 *
 * @param {Record<string, string>} env
 */
async function startAgent(env = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-screenshots-'));
  const child = spawn(process.execPath, [join(ROOT, 'dist/cli.js')], {
    cwd: folder,
    env: { PATH: process.env.PATH, LOG_FORMAT: 'json', AGENT_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  /** @type {Record<string, string>} */
  const urls = {};
  const lines = createInterface({ input: child.stdout });
  const wanted = env.NGROK_SERVER_ADDR ? 'local API listening' : 'remote API online';
  for await (const text of lines) {
    if (!text.startsWith('{')) continue;
    const line = JSON.parse(text);
    urls[line.msg] = line.url;
    if (line.msg === wanted) break;
  }
  child.stdout.resume();
  return {
    url: String(urls['local API listening']),
    remote: urls['remote API online'],
    /** @param {object} body */
    start: async (body) => {
      const answer = await fetch(`${urls['local API listening']}/tunnels`, {
        method: 'POST',
        body: JSON.stringify(body),
        headers: { 'content-type': 'application/json' },
      });
      if (!answer.ok) throw new Error(await answer.text());
    },
    stop: async () => {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** @type {import('playwright-core').Browser} */
let browser;

/**
 * Takes one picture in light and in dark, for a phone and for a desktop.
 *
 * @param {string} name
 * @param {string} url
 * @param {(page: import('playwright-core').Page) => Promise<unknown>} [act]
 */
async function picture(name, url, act = async () => {}) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    for (const [device, viewport] of Object.entries({ phone: PHONE, desktop: DESKTOP })) {
      const options = { viewport, colorScheme, deviceScaleFactor: 2, ignoreHTTPSErrors: true };
      const context = await browser.newContext(/** @type {any} */ ({ ...options, reducedMotion: 'reduce' }));
      const page = await context.newPage();
      page.setDefaultTimeout(TIMEOUT_MS);
      await page.goto(url);
      await page.locator('main').waitFor();
      await act(page);
      // Nothing looks as if it were pointed at.
      await page.mouse.move(0, 0);
      await page.evaluate('document.fonts.ready');
      await page.screenshot({ path: join(OUTPUT, `${name}-${device}-${colorScheme}.png`) });
      await context.close();
    }
  }
}

/** Takes them all. */
async function main() {
  buildIfStale();
  mkdirSync(OUTPUT, { recursive: true });
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox'],
  });
  const upstream = createServer(heating).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const { port } = /** @type {import('node:net').AddressInfo} */ (upstream.address());
  const agent = await startAgent({ GATEWAY_HTTPS_PORT: '8443', GATEWAY_HTTP_PORT: '0', AGENT_CONNECTOR: 'native' });
  const closed = await startAgent({ NGROK_AUTHTOKEN: 'none', NGROK_SERVER_ADDR: '127.0.0.1:9' });
  try {
    await picture('empty', agent.url, (page) => page.getByText('No tunnels yet').waitFor());
    await agent.start({ forwards_to: port, domain: 'camera.localhost' });
    await agent.start({
      forwards_to: port,
      domain: 'heating.localhost',
      policy: {
        on_http_request: [{ actions: [{ type: 'basic-auth', config: { credentials: ['jo:a-long-password'] } }] }],
      },
    });
    await agent.start({ forwards_to: port, protocol: 'tcp' });
    for (let n = 0; n < 37; n++) await request('camera.localhost');
    await picture('online', agent.url, (page) => page.getByText('37 requests').waitFor());
    await forDocs('device-page', agent.url, (page) => page.getByText('37 requests').waitFor());
    await inspector(agent.url);
    await picture('start', `${agent.url}/#/start`, (each) => each.getByText(String(port)).first().waitFor());
    await picture('start-errors', `${agent.url}/#/start`, async (each) => {
      await each.getByLabel('Forward to').fill('http://user@host');
      await each.getByRole('textbox', { name: 'Domain' }).fill('*.example.com');
      await each.getByRole('button', { name: 'Start tunnel' }).click();
      await each.getByText('The tunnel was not started').waitFor();
    });
    await picture('policy', agent.url, async (each) => {
      await each.getByRole('link', { name: 'Policy: heating' }).click();
      const editor = each.getByRole('textbox', { name: 'Traffic policy' });
      // Loaded after the dialog opens; what is filled in earlier would be overwritten.
      while (!(await editor.inputValue()).includes('basic-auth')) await each.waitForTimeout(50);
      await editor.fill(WRONG_POLICY);
      await each.getByRole('button', { name: 'Line 4' }).waitFor();
    });
    await picture('qr', agent.url, async (each) => {
      await each
        .getByRole('link', { name: /^QR code/ })
        .first()
        .click();
      await each.locator('.qr path[d^=M]').waitFor();
    });
    await picture('delete', agent.url, (each) =>
      each
        .getByRole('link', { name: /^Delete/ })
        .first()
        .click(),
    );
    await picture('doctor', `${agent.url}/#/doctor`, (each) =>
      each.getByRole('button', { name: 'Check again' }).waitFor(),
    );
    await picture('sign-in', String(agent.remote), (each) => each.getByLabel('API token').waitFor());
    const label = 'a-very-long-label-of-sixty-characters-that-does-not-end-soon';
    await agent.start({ forwards_to: 9, domain: `${label}.${label}.${label}.localhost` });
    await request(`${label}.${label}.${label}.localhost`);
    await picture('long', agent.url, (each) => each.getByText('Upstream down').waitFor());
    await picture('offline', closed.url, (each) => each.getByText('What to do').waitFor());
    const proxy = await startProxy(agent.url);
    await picture('lost', proxy.url, async (each) => {
      await each.getByText('Live', { exact: true }).waitFor();
      proxy.cut();
      await each.getByText('No answer from the agent').waitFor();
      proxy.restore();
    });
    proxy.close();
    await dashboardPictures({ picture, forDocs }, port);
  } finally {
    await Promise.all([agent.stop(), closed.stop(), browser.close()]);
    upstream.close();
  }
}

/**
 * Forwards to an agent, until it is cut.
 *
 * @param {string} url
 */
async function startProxy(url) {
  const { port } = new URL(url);
  /** @type {Set<import('node:net').Socket>} */
  const sockets = new Set();
  let isCut = false;
  const server = createTcpServer((socket) => {
    if (isCut) return void socket.destroy();
    const forward = connect(Number(port), '127.0.0.1');
    for (const each of [socket, forward]) {
      sockets.add(each);
      each.on('error', () => {}).on('close', () => sockets.delete(each));
    }
    socket.pipe(forward).pipe(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = /** @type {import('node:net').AddressInfo} */ (server.address());
  const cut = () => {
    isCut = true;
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${address.port}`,
    cut,
    restore: () => {
      isCut = false;
    },
    close: () => {
      cut();
      server.close();
    },
  };
}

const WRONG_POLICY = `on_http_request:
  - name: only from the office
    actions:
      - type: restrict-ip
        config:
          allow: [203.0.113.0/24]
`;

/**
 * A device with a few resources.
 *
 * @param {import('node:http').IncomingMessage} req
 * @param {import('node:http').ServerResponse} res
 */
function heating(req, res) {
  if (req.url?.startsWith('/api/rooms')) {
    const rooms = [
      { name: 'office', celsius: 21.5, valve: 'open' },
      { name: 'workshop', celsius: 17, valve: 'closed' },
    ];
    res.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    return void res.end(gzipSync(JSON.stringify({ rooms, outside: 4.2 })));
  }
  if (req.url === '/readings') {
    res.writeHead(200, { 'content-type': 'text/event-stream' });
    return void res.end(
      [20.9, 21.2, 21.5].map((celsius) => `event: reading\ndata: {"celsius":${celsius}}\n\n`).join(''),
    );
  }
  if (req.method === 'POST') return void res.writeHead(302, { location: '/' }).end();
  if (req.url === '/old.css') return void res.writeHead(404).end('not found');
  if (req.url === '/firmware') return void res.writeHead(503).end('busy: try later');
  res.end('hello');
}

/**
 * Pictures of the traffic inspector, with some requests.
 *
 * @param {string} url
 */
async function inspector(url) {
  await picture('inspector-off', url, async (page) => {
    await page.getByRole('link', { name: 'Traffic: camera' }).click();
    await page.getByText('Nothing captured').waitFor();
  });
  await fetch(`${url}/tunnels/camera/inspection`, {
    method: 'PUT',
    body: '{}',
    headers: { 'content-type': 'application/json' },
  });
  await picture('inspector-waiting', url, async (page) => {
    await page.getByRole('link', { name: 'Traffic: camera' }).click();
    await page.getByText('Waiting for requests').waitFor();
  });
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  await request('camera.localhost', '/');
  await request('camera.localhost', '/login', { method: 'POST', headers: form, body: 'user=jo&password=long-secret' });
  await request('camera.localhost', '/old.css');
  await request('camera.localhost', '/firmware');
  await request('camera.localhost', '/readings');
  const long = `/search?filter=${'long-value-'.repeat(30)}`;
  await request('camera.localhost', long);
  await request('camera.localhost', '/api/rooms?token=a-long-secret', {
    headers: { authorization: 'Bearer long-secret' },
  });
  /** @param {import('playwright-core').Page} page */
  const list = async (page) => {
    await page.getByRole('link', { name: 'Traffic: camera' }).click();
    await page.getByText('/api/rooms').waitFor();
  };
  /**
   * @param {string} path
   * @param {string} text
   */
  const detail = (path, text) => async (/** @type {import('playwright-core').Page} */ page) => {
    await list(page);
    await page.getByRole('link', { name: path }).click();
    await page.getByText(text).first().waitFor();
  };
  await picture('inspector-list', url, list);
  await picture('inspector-json', url, detail('/api/rooms', 'outside'));
  await picture('inspector-form', url, detail('/login', '[masked]'));
  await picture('inspector-messages', url, detail('/readings', '21.2'));
  await picture('inspector-long', url, detail('/search', 'hello'));
  await picture('inspector-edit', url, async (page) => {
    await detail('/api/rooms', 'outside')(page);
    await page.getByRole('link', { name: 'Edit and replay' }).click();
    await page.getByRole('button', { name: 'Send' }).waitFor();
  });
  await forDocs('inspector', url, list);
}

/**
 * The pictures that the documentation shows, for light and dark readers.
 *
 * @param {string} name
 * @param {string} url
 * @param {(page: import('playwright-core').Page) => Promise<unknown>} act
 */
async function forDocs(name, url, act) {
  for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
    const options = {
      viewport: { width: 1000, height: 760 },
      deviceScaleFactor: 1.5,
      colorScheme,
      ignoreHTTPSErrors: true,
    };
    const context = await browser.newContext({ ...options, reducedMotion: 'reduce' });
    const page = await context.newPage();
    page.setDefaultTimeout(TIMEOUT_MS);
    await page.goto(url);
    await act(page);
    // Nothing looks as if it were pointed at.
    await page.mouse.move(0, 0);
    const suffix = colorScheme === 'dark' ? '-dark' : '';
    await page.screenshot({ path: join(ROOT, `docs/images/${name}${suffix}.png`) });
    await context.close();
  }
}

/**
 * Requests an endpoint of the embedded gateway.
 *
 * @param {string} host
 * @param {string} path
 * @param {{ method?: string, headers?: object, body?: string }} [more]
 */
async function request(host, path = '/', { method = 'GET', headers = {}, body } = {}) {
  const { request: ask } = await import('node:https');
  const asked = ask({
    ...{ host: '127.0.0.1', port: 8443, servername: host, path, method },
    headers: { host, ...headers },
    rejectUnauthorized: false,
  });
  const [answer] = await once(asked.end(body), 'response');
  answer.resume();
  await once(answer, 'end');
}

await main();
