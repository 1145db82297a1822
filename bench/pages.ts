import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { promisify } from 'node:util';
import { type BrowserContext, chromium } from 'playwright-core';
import { startAgentProcess } from './support/agent.ts';
import { median, ms, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { freePort, startChild } from './support/process.ts';

const LOADS = 21;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const CLI = new URL('../../dist/cli.js', import.meta.url).pathname;

/** How long the pages take on loopback, in an open browser, from the navigation to the first paint and to what people look for. */
export async function benchPages(): Promise<void> {
  if (!existsSync(CHROMIUM)) {
    console.log('\npages: skipped, as chromium is not installed (CHROMIUM names another browser)');
    return;
  }
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  const rows = [];
  for (const { title, url, link, shown, stop } of [await devicePage(), await dashboard()]) {
    const context = await browser.newContext({ ignoreHTTPSErrors: true });
    // Signs in, where that is needed, and warms up.
    await load(context, link, shown);
    const loads = [];
    for (let n = 0; n < LOADS; n++) loads.push(await load(context, url, shown));
    await context.close();
    await stop();
    const paints = loads.map(({ paint }) => paint);
    rows.push([
      title,
      `first paint ${ms(median(paints))}, the slowest ${ms(Math.max(...paints))}`,
      `state shown after ${ms(median(loads.map(({ state }) => state)))}`,
    ]);
  }
  await browser.close();
  section(`pages on loopback, median of ${LOADS} loads without a cache`, rows);
}

interface Page {
  title: string;
  url: string;
  /** Opens it signed in. */
  link: string;
  /** Selector of what people look for. */
  shown: string;
  stop(): Promise<void>;
}

async function devicePage(): Promise<Page> {
  const agent = await startAgentProcess(temporaryFolder(), { AGENT_CONNECTOR: 'native' });
  return { title: "device's page", url: agent.api, link: agent.api, shown: '#state', stop: agent.stop };
}

async function dashboard(): Promise<Page> {
  const domain = 'gateway.localhost';
  const httpsPort = String(await freePort());
  const settings = { GATEWAY_DOMAIN: domain, GATEWAY_HTTPS_PORT: httpsPort, DATA_DIR: temporaryFolder() };
  const ports = { GATEWAY_HTTP_PORT: '0', GATEWAY_SESSION_PORT: '0' };
  const ready = (line: string) => line.includes('gateway listening') || undefined;
  const { stop } = await startChild(process.execPath, [CLI, 'gateway'], { ...settings, ...ports }, ready);
  const env = { ...process.env, ...settings };
  const { stdout } = await promisify(execFile)(process.execPath, [CLI, 'gateway', 'dashboard', '--json'], { env });
  const { url, link } = JSON.parse(stdout) as { url: string; link: string };
  return { title: "gateway's dashboard", url, link, shown: '.figures', stop };
}

/** Milliseconds from the navigation to the first paint of content, and until what people look for is there. */
async function load(context: BrowserContext, url: string, shown: string): Promise<{ paint: number; state: number }> {
  const page = await context.newPage();
  const network = await context.newCDPSession(page);
  await network.send('Network.clearBrowserCache');
  await page.addInitScript(`new MutationObserver((_, observer) => {
    if (!document.querySelector(${JSON.stringify(shown)})) return;
    observer.disconnect();
    performance.mark('shown');
  }).observe(document, { childList: true, subtree: true })`);
  await page.goto(url);
  await page.locator(shown).waitFor();
  const [paint, state] = (await page.evaluate(
    "['first-contentful-paint', 'shown'].map((name) => performance.getEntriesByName(name)[0]?.startTime)",
  )) as [number, number];
  await page.close();
  return { paint, state };
}
