import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { onTestFinished } from 'vitest';
import type { Missing } from './requirements.ts';

/** First the one without the browser's own interface: each page of a test takes it a third of the processor time. */
const PATHS = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];
/**
 * Playwright's, and the popups of the address bar: Chromium loads those in a process for each window, which doubles the processor
 * time of a page. The last such argument counts alone.
 */
const WITHOUT = [
  'AvoidUnnecessaryBeforeUnloadCheckSync',
  'DestroyProfileOnBrowserClose',
  'HttpsUpgrades',
  'HttpsFirstBalancedModeAutoEnable',
  'LensOverlay',
  'MediaRouter',
  'PaintHolding',
  'ThirdPartyStoragePartitioning',
  'AvoidCorsURLLoaderRestartOnRedirect',
  'OptimizationHints',
  'NetworkTimeServiceQuerying',
  'AimEnabled',
  'PreconnectToSearch',
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
];
const found = process.env.CHROMIUM ?? PATHS.find((path) => existsSync(path));

export const NO_CHROMIUM: Missing = found === undefined ? 'chromium is not installed' : null;

/**
 * Starts Chromium; tests of a file share it. Close it after the last one.
 *
 * @param domain whose names are this machine, beside those below localhost
 */
export function launchBrowser(domain = 'localhost'): Promise<Browser> {
  // Root may not use the sandbox, and the pages are our own.
  const args = [
    '--no-sandbox',
    `--host-resolver-rules=MAP *.${domain} 127.0.0.1`,
    `--disable-features=${WITHOUT.join(',')}`,
  ];
  return chromium.launch({ executablePath: found ?? '', args });
}

/** A page in a fresh profile, and what went wrong on it. */
export interface WatchedPage {
  page: Page;
  /** Violations of the content security policy, uncaught errors, dialogs, and requests to other hosts. */
  troubles: string[];
}

/** Opens a page for one test, and watches it from its first request on. */
export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const requests: string[] = [];
  onTestFinished(async ({ task }) => {
    const [error] = task.result?.errors ?? [];
    if (error) {
      const text = await page.evaluate('document.body.innerText').catch(String);
      error.message += `\n${page.url()} shows:\n${text}\n\nits requests:\n${requests.join('\n')}\n`;
    }
    await context.close();
  });
  const troubles: string[] = [];
  page.on('pageerror', (error) => troubles.push(`uncaught: ${error.message}`));
  page.on('dialog', (dialog) => {
    troubles.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('console', (message) => {
    if (/content security policy|trusted/i.test(message.text())) troubles.push(message.text());
  });
  page.on('request', (request) => {
    const { host, protocol } = new URL(request.url());
    if (protocol.startsWith('http') && host !== new URL(url).host) troubles.push(`request to ${host}`);
  });
  page.on('response', (response) =>
    requests.push(`${response.status()} ${response.request().method()} ${response.url()}`),
  );
  page.on('requestfailed', (request) =>
    requests.push(`${request.failure()?.errorText} ${request.method()} ${request.url()}`),
  );
  page.setDefaultTimeout(45_000);
  await page.goto(url);
  return { page, troubles };
}

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

/**
 * The accessibility problems of a page, light and dark, that axe-core calls serious or critical. Of the second scheme it looks at
 * contrast alone, as nothing else differs.
 *
 * @param within selector of the part to look at; omitted: the whole page
 */
export async function seriousProblems(page: Page, within?: string): Promise<string[]> {
  const isLoaded = await page.evaluate('typeof axe !== "undefined"');
  if (!isLoaded) await page.evaluate(readAxe());
  const found = await problemsNow(page, within, false);
  const isDark = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches");
  await page.emulateMedia({ colorScheme: isDark ? 'light' : 'dark' });
  found.push(...(await problemsNow(page, within, true)));
  await page.emulateMedia({ colorScheme: isDark ? 'dark' : 'light' });
  return found;
}

async function problemsNow(page: Page, within: string | undefined, contrastOnly: boolean): Promise<string[]> {
  const part = within === undefined ? 'document' : JSON.stringify(within);
  const options = { resultTypes: ['violations'], ...(contrastOnly && { runOnly: ['color-contrast'] }) };
  const violations = (await page.evaluate(
    `axe.run(${part}, ${JSON.stringify(options)}).then((result) => result.violations)`,
  )) as {
    id: string;
    impact: string;
    nodes: { html: string; failureSummary: string }[];
  }[];
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`));
}

let axe: string | null = null;

/** Not by a script element, which the content security policy blocks. */
function readAxe(): string {
  axe ??= readFileSync(AXE, 'utf8');
  return axe;
}

/** Of words of letters alone: texts with addresses and ids may break anywhere. */
const BROKEN_WORDS = `(within) => {
  const found = new Set();
  const range = document.createRange();
  const words = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  const clips = (element) => ['hidden', 'clip'].includes(getComputedStyle(element).overflowX);
  const scrolls = (element) => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX);
  const isHidden = (element) => element.clientWidth <= 1 && clips(element);
  for (let node = words.nextNode(); node !== null; node = words.nextNode()) {
    if (!node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
    const around = [];
    for (let one = node.parentElement; one !== null; one = one.parentElement) around.push(one);
    if (around.some(isHidden)) continue;
    const scroller = around.findIndex(scrolls);
    const within = scroller === -1 ? around : around.slice(0, scroller);
    for (const { 0: word, index } of node.data.matchAll(/(?<!\\S)[“(]?\\p{L}{2,}[”).,:;?…]*(?!\\S)/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const { left, right, width } = range.getBoundingClientRect();
      if (width === 0) continue;
      if (new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1) found.add(word + ' (broken)');
      const page = document.documentElement.clientWidth;
      const sticksOut = (element) => {
        const box = element.getBoundingClientRect();
        return right > box.right + 1 || left < box.left - 1;
      };
      const isCut = within.some((element) => {
        const isMarked = getComputedStyle(element).textOverflow === 'ellipsis' && element.title !== '';
        return clips(element) && !isMarked && sticksOut(element);
      });
      if (isCut || (scroller === -1 && (right > page + 1 || left < -1))) found.add(word + ' (cut off)');
    }
  }
  return [...found];
}`;

/** Words on the page that are cut off, stick out, or are broken within. */
export function brokenWords(page: Page, within = 'body'): Promise<string[]> {
  return page.evaluate(`(${BROKEN_WORDS})(${JSON.stringify(within)})`);
}
