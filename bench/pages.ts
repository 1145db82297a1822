import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { type Browser, type BrowserContext, chromium } from 'playwright-core';
import { createTunnel, startAgentProcess } from './support/agent.ts';
import { median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { fillGateway, startFullAgent } from './support/full-gateway.ts';
import { type LoadedPage, load, type Network } from './support/page-load.ts';
import { freePort, startChild, startScript } from './support/process.ts';

const LOADS = 21;
const SLOW_LOADS = 5;
const [DEVICES, DOMAINS, TUNNELS] = [500, 500, 200];
/** As WebPageTest defines it. */
const MOBILE_3G: Network = { latency: 300, down: 1_600, up: 768 };
/** Until what a change sends has arrived: the gateway sends every two seconds. */
const SETTLED_MS = 6_000;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;

/** How long the pages take from the navigation to the first paint and to what people look for, and what they load for it. */
export async function benchPages(): Promise<void> {
  if (!existsSync(CHROMIUM)) {
    console.log('\npages: skipped, as chromium is not installed (CHROMIUM names another browser)');
    return;
  }
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  await onLoopback(browser);
  await full(browser);
  await browser.close();
}

async function onLoopback(browser: Browser): Promise<void> {
  const rows = [];
  const agent = await startAgentProcess(temporaryFolder(), { AGENT_CONNECTOR: 'native' });
  const dashboard = await startDashboard(temporaryFolder());
  const pages = [
    { title: "device's page", url: agent.api, link: agent.api, shown: '#state' },
    { title: "gateway's dashboard", ...dashboard, shown: '.figures' },
  ];
  for (const { title, url, link, shown } of pages) {
    const context = await signedIn(browser, link, shown);
    const loads = await loadOften(context, LOADS, url, shown);
    await context.close();
    rows.push([
      title,
      `first paint ${ms(median(loads.map(({ paint }) => paint)))}, the slowest ${ms(Math.max(...loads.map(({ paint }) => paint)))}`,
      `state shown after ${ms(median(loads.map(({ state }) => state)))}`,
    ]);
  }
  await agent.stop();
  await dashboard.stop();
  section(`pages on loopback, median of ${LOADS} loads without a cache`, rows);
}

/** A gateway with many devices and domains, and an agent with many tunnels, over a slow network. */
async function full(browser: Browser): Promise<void> {
  const folder = temporaryFolder();
  const authtoken = await fillGateway(folder, DEVICES, DOMAINS);
  const { url, link, agents, ca, stop } = await startDashboard(folder);
  const upstream = await startScript<{ port: number }>('upstream');
  const agent = await startFullAgent(TUNNELS, upstream.ready.port, {
    AGENT_CONNECTOR: 'native',
    NGROK_SERVER_ADDR: agents,
    NGROK_AUTHTOKEN: authtoken,
    NGROK_CA_CERT: ca,
  });
  const atGateway = await signedIn(browser, link, '.figures');
  const atDevice = await browser.newContext();
  const pages = [
    { title: 'dashboard, overview', context: atGateway, url, shown: '.problems li' },
    { title: 'dashboard, devices', context: atGateway, url: `${url}/#/devices`, shown: 'tbody tr' },
    { title: 'dashboard, domains', context: atGateway, url: `${url}/#/domains`, shown: 'tbody tr' },
    { title: "device's page", context: atDevice, url: agent.api, shown: '.tunnel' },
  ];
  const rows = [];
  for (const { title, context, url, shown } of pages) {
    const loads = await loadOften(context, SLOW_LOADS, url, shown, MOBILE_3G);
    const middle = (of: (load: LoadedPage) => number) => median(loads.map(of));
    // The browser does not report every event of this stream.
    const page = url === agent.api ? await openEvents(`${url}/page/events`) : await load(context, url, shown);
    const change = await bytesOfChange(page, () =>
      createTunnel(agent, `new-${rows.length}.localhost`, upstream.ready.port),
    );
    await page.close();
    rows.push([
      title,
      `first paint ${ms(middle(({ paint }) => paint))}`,
      `list after ${ms(middle(({ state }) => state))}`,
      `${middle(({ requests }) => requests)} requests`,
      `${(middle(({ bytes }) => bytes) / 1000).toFixed(1)} kB`,
      `a new tunnel: ${change} bytes`,
    ]);
  }
  for (const context of [atGateway, atDevice]) await context.close();
  for (const program of [agent, upstream]) await program.stop();
  await stop();
  const { latency, down } = MOBILE_3G;
  section(
    `pages of a gateway with ${DEVICES} devices and ${DOMAINS} domains, and of a device with ${TUNNELS} tunnels, over 3G (${latency} ms, ${down} kbit/s), median of ${SLOW_LOADS} loads without a cache`,
    rows,
  );
}

type Receiver = Pick<LoadedPage, 'received' | 'close'>;

/** Opens a live feed as a page does. */
async function openEvents(url: string): Promise<Receiver> {
  let bytes = 0;
  const request = get(url, { headers: { 'accept-encoding': 'gzip' } });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.on('data', (piece: Buffer) => {
    bytes += piece.length;
  });
  response.on('error', () => {});
  return { received: () => bytes, close: async () => void request.destroy() };
}

/** What an open page receives because of a change, without the signs of life in between. */
async function bytesOfChange({ received }: Receiver, change: () => Promise<unknown>): Promise<number> {
  const settled = () => new Promise((resolve) => setTimeout(resolve, SETTLED_MS));
  await settled();
  const before = received();
  await change();
  await settled();
  return received() - before;
}

/** A browser that is signed in by a link, and warm. */
async function signedIn(browser: Browser, link: string, shown: string): Promise<BrowserContext> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true });
  await (await load(context, link, shown)).close();
  return context;
}

async function loadOften(
  context: BrowserContext,
  times: number,
  url: string,
  shown: string,
  over?: Network,
): Promise<LoadedPage[]> {
  const loads = [];
  for (let n = 0; n < times; n++) {
    const page = await load(context, url, shown, over);
    await page.close();
    loads.push(page);
  }
  return loads;
}

interface Dashboard {
  url: string;
  /** Opens it signed in. */
  link: string;
  /** The address for agents, and the file with its certificate authority. */
  agents: string;
  ca: string;
  stop(): Promise<void>;
}

async function startDashboard(folder: string): Promise<Dashboard> {
  const httpsPort = String(await freePort());
  const settings = { GATEWAY_DOMAIN: 'localhost', GATEWAY_HTTPS_PORT: httpsPort, DATA_DIR: folder };
  const rest = { GATEWAY_HTTP_PORT: '0', GATEWAY_SESSION_PORT: '0', LOG_FORMAT: 'json' };
  const ready = (line: string) => {
    if (!line.startsWith('{')) return undefined;
    const entry = JSON.parse(line) as { msg: string; agents: string; ca: string };
    return entry.msg === 'gateway listening' ? entry : undefined;
  };
  const child = await startChild(process.execPath, [CLI, 'gateway'], { ...settings, ...rest }, ready);
  const env = { ...process.env, ...settings };
  const { stdout } = await promisify(execFile)(process.execPath, [CLI, 'gateway', 'dashboard', '--json'], { env });
  const { url, link } = JSON.parse(stdout) as { url: string; link: string };
  const { agents, ca } = child.ready;
  return { url, link, agents, ca, stop: child.stop };
}
