import { mkdirSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ENDINGS } from '../../src/gateway/endpoints/traffic-counts.ts';
import { HistoryFile, type HistorySubject } from '../../src/gateway/history/history-file.ts';
import { Values } from '../../src/gateway/history/history-values.ts';
import { brokenWords, launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { addDevices, type Filled, fillStore, openDashboard } from '../support/dashboard.ts';
import { makeDataDir, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { unless } from '../support/requirements.ts';
import { silentLog } from '../support/silent-log.ts';
import { until } from '../support/until.ts';

const HOUR_S = 3_600;
const URL_OF_CAM = 'https://cam.site.example.com';
const WIDTHS = [360, 800, 1440];
const OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
/** How requests have ended three hours ago. */
const ENDED: Readonly<Partial<Record<(typeof ENDINGS)[number], number>>> = {
  s2xx: 80,
  s3xx: 5,
  s4xx: 4,
  s5xx: 3,
  refused: 6,
  failed: 2,
};

function countsOf(): Values {
  const values = new Values();
  values.requests = 100;
  for (const [at, ending] of ENDINGS.entries()) values.ended[at] = ENDED[ending] ?? 0;
  // All within 10 to 20 ms.
  values.ended[ENDINGS.length + 2] = 100;
  values.setBytes(2_048, 1_048_576);
  values.tallies = { deny: 6 };
  return values;
}

/**
 * A history of 40 days until this hour: ten to seven hours ago no gateway ran, five hours ago the device was offline for half an
 * hour, and three hours ago its endpoint had a hundred requests.
 */
async function writeHistory(dataDir: string, device: string): Promise<void> {
  mkdirSync(join(dataDir, 'gateway'), { recursive: true });
  const file = HistoryFile.open(join(dataDir, 'gateway', 'history.db'), 395, silentLog);
  const now = Math.floor(Date.now() / 1000);
  const hour = now - (now % HOUR_S);
  const ago = (hours: number) => hour - hours * HOUR_S;
  const run = (of: HistorySubject, since: number, until: number) => ({ of, since, until });
  const own: HistorySubject = { kind: 'gateway', key: '', device: '' };
  const ofDevice: HistorySubject = { kind: 'device', key: device, device };
  const endpoint: HistorySubject = { kind: 'endpoint', key: URL_OF_CAM, device };
  const rows = [own, endpoint].map((of) => ({ of, at: ago(3) / 60 + 5, values: countsOf() }));
  const runs = [
    run(own, ago(960), ago(10)),
    run(own, ago(7), now),
    ...[ofDevice, endpoint].flatMap((of) => [
      run(of, ago(960), ago(10)),
      run(of, ago(7), ago(5)),
      run(of, ago(4.5), now),
    ]),
  ];
  // The device ran for most of the half hour offline.
  const away = [0, 1].map((slot) => ({
    ...{ device, at: ago(5) / 60 + 10 * slot, seconds: 600, machine: [61.2, null, null, -71] as const },
  }));
  await file.write(rows, runs, now, away);
  await file.sumUp(Math.floor(now / 60));
  await file.close();
}

/** The rows of the table, the newest first, by the heads of its columns. */
async function tableOf(page: Page): Promise<Record<string, string>[]> {
  const rows = (await page.evaluate(
    `[...document.querySelectorAll('.history table tr')].map((row) => [...row.cells].map((cell) => cell.textContent))`,
  )) as string[][];
  const [heads = [], ...others] = rows;
  return others.map((cells) => Object.fromEntries(cells.map((cell, at) => [heads[at] ?? '', cell])));
}

describe('the history on the dashboard', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  let filled: Filled;
  let dataDir: string;

  beforeAll(async () => {
    dataDir = await makeDataDir();
    const store = await startTestGateway({ dataDir });
    filled = await fillStore(store.store, 'a text');
    await addDevices(store.store, filled.devices, 30);
    const { auditLog, ids, database } = store.store;
    const created_at = new Date(Date.now() - 3 * HOUR_S * 1000).toISOString();
    const values = { name: 'cabinet-7' };
    await database.write(() =>
      auditLog.insert({
        ...{ id: ids.next('evt'), created_at, type: 'device_updated.v0', object_id: filled.devices, by: 'gateway' },
        ...{ from_address: null, part_of: null, before: values, after: values },
      }),
    );
    await store.close();
    await writeHistory(dataDir, filled.devices);
    [browser, gateway] = await Promise.all([launchBrowser(), startTestGateway({ dataDir, historyDays: 395 })]);
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
    await rm(dataDir, { recursive: true });
  });

  const open = (view: string, width = 800) =>
    openDashboard(browser, gateway, view, { viewport: { width, height: 900 }, timezoneId: 'UTC' });
  const ofDevice = () => `history/devices/${filled.devices}`;

  it('says whether a device was up, draws it, and has the same numbers as a table', async () => {
    const { page } = await open(ofDevice());
    await page.getByText(/It was online for 97\.\d+ % of the known time/).waitFor();
    const summary = await page.locator('.availability').innerText();
    expect(summary).toMatch(/Longest outage: 30 min \(.*\d\d:00 to \d\d:30\)/);
    expect(summary).toContain('Of 3 h, nothing is known');

    const rows = await tableOf(page);
    expect(rows.length).toBeGreaterThanOrEqual(24);
    expect(rows[3]).toMatchObject({
      ...{ Online: '1 h', Offline: '0 s', 'Not known': '0 s', Requests: '100', '2xx': '80', '3xx': '5', '4xx': '4' },
      ...{ '5xx': '3', Refused: '6', 'Upstream failed': '2', 'Refused by': 'deny 6' },
      ...{ p50: '15 ms', p95: '20 ms', p99: '20 ms', 'To clients': '1.0 MiB', 'From clients': '2.0 KiB' },
    });
    // Nothing is another thing than nothing known.
    expect(rows[2]).toMatchObject({ Online: '1 h', 'Not known': '0 s', Requests: '0', p50: '–' });
    expect(rows[5]).toMatchObject({
      ...{ Online: '30 min', Offline: '30 min', 'Without connection': '20 min', 'Not known': '0 s' },
    });
    expect(summary).toContain('For 20 min without a session, the device ran');
    for (const at of [8, 9, 10]) expect(rows[at]).toMatchObject({ Online: '0 s', 'Not known': '1 h', Requests: '–' });

    // The bar of three hours ago has 80 of 100 parts of the axis, which takes 142 of 150 pixels.
    const boxOf = (selector: string) =>
      page.evaluate(
        `(({ width, height }) => ({ width, height }))(document.querySelector('${selector}').getBBox())`,
      ) as Promise<{ width: number; height: number }>;
    expect((await boxOf('path.successful[fill]')).height).toBeCloseTo(113.6, 0);
    const step = (await boxOf('path.successful[fill]')).width + 2;
    expect((await boxOf('path.unknown[fill]')).width).toBeCloseTo(3 * step, 0);
    const fills = await page
      .locator('path.area')
      .evaluateAll((paths) => paths.map((path) => path.getAttribute('fill')));
    expect(new Set(fills).size).toBeGreaterThan(7);
    await page.locator('.events').getByText('Device updated: cabinet-7').waitFor();
  });

  it('reads its points to those who use the keyboard, and keeps what is shown in the address', async () => {
    const { page } = await open(ofDevice());
    const status = page.locator('.chosen [role=status]');
    await page.getByRole('slider').focus();
    for (let times = 0; times < 3; times += 1) await page.keyboard.press('ArrowLeft');
    await until(async () => /100 requests/.test(await status.innerText()), 'the point is read', { everyMs: 50 });
    expect(await status.innerText()).toMatch(
      /^\w+,? \d+ \w+, \d\d:00–\d\d:00: online all the time; 100 requests: 80 2xx, 5 3xx, 4 4xx, 6 Refused, 3 5xx, 2 Upstream failed; latency p50 15 ms, .*Device updated: cabinet-7$/,
    );
    await page.getByText('30 days', { exact: true }).click();
    await page.getByText('Days are those of UTC').waitFor();
    expect((await tableOf(page)).length).toBe(31);
    expect(page.url()).toContain('range=30-days');
    await page.getByText('Day', { exact: true }).click();
    await page.getByRole('button', { name: /^Earlier/ }).click();
    await page.getByRole('button', { name: 'Now', exact: true }).waitFor();
    await page.reload();
    await page.getByRole('button', { name: 'Now', exact: true }).waitFor();
    await page.getByText('It was online all the time.').waitFor();
    // Minutes of yesterday are no longer kept.
    await page.getByText('Hour', { exact: true }).click();
    await page.getByRole('button', { name: 'Now', exact: true }).waitFor({ state: 'detached' });
    expect(page.url()).toMatch(/range=hour$/);
  });

  it('fits any width, and has no accessibility problem in light and dark, with the table and without', async () => {
    const { page, troubles } = await open(`history/endpoints/${encodeURIComponent(URL_OF_CAM)}?range=day`, WIDTHS[0]);
    await page.locator('path.successful[fill]').waitFor();
    const found: string[] = [];
    const examine = async (what: string, widths: readonly number[]) => {
      for (const width of widths) {
        await page.setViewportSize({ width, height: 900 });
        await until(async () => (await page.locator('.panel svg').last().boundingBox())?.width !== 0, 'it is drawn');
        const wide = await page.evaluate(OVERFLOW);
        if (wide !== 0) found.push(`${what}, ${width} px: ${wide} px too wide`);
        for (const word of await brokenWords(page)) found.push(`${what}, ${width} px: ${word}`);
        for (const problem of await seriousProblems(page, '#content')) found.push(`${what}, ${width} px: ${problem}`);
      }
    };
    await examine('plots', WIDTHS);
    await page.getByRole('button', { name: 'Show as a table' }).click();
    await page.getByText('counted only while somebody looks').waitFor();
    const top = (value: string, requests: number, at_least = requests) => ({ value, requests, at_least });
    const lists = {
      ...{ since: new Date().toISOString(), requests: 1_234, not_looked_at: 34 },
      ...{ paths: [top(`/${'long/'.repeat(30)}`, 900, 800)], client_networks: [top('2001:db8:1:0::/56', 1_200)] },
      statuses: [top('200', 1_100), top('none', 100)],
    };
    await page.route('**/endpoints?search=*', (route) =>
      route.fulfill({ json: { endpoints: [{ id: 'ep_1', url: URL_OF_CAM }] } }),
    );
    await page.route('**/endpoints/ep_1/top_requests', (route) => route.fulfill({ json: lists }));
    await page.getByRole('button', { name: 'Count them' }).click();
    await page.getByText('of which the lists lack 34').waitFor();
    await page.getByText('up to 900').waitFor();
    await examine('table', [360]);
    expect(found).toEqual([]);
    expect(troubles).toEqual([]);
  });

  it('is reached from the overview and from an item, and says when the gateway keeps none', async () => {
    const { page } = await open('');
    await page.locator('#content').getByRole('link', { name: 'History', exact: true }).click();
    await page.getByText(/A gateway ran for 8\d\.\d+ % of the time/).waitFor();
    await page.goto(`${gateway.apiUrl}/#/devices/${filled.devices}`);
    await page.locator('#content').getByRole('link', { name: 'History', exact: true }).click();
    await page.getByRole('heading', { name: 'History of cabinet-7' }).waitFor();
    const body = JSON.stringify({ error_code: 'ERR_GATEWAY_NO_HISTORY', msg: 'none' });
    await page.route('**/history?*', (route) => route.fulfill({ status: 404, body }));
    await page.goto(`${gateway.apiUrl}/#/history`);
    await page.getByText('This gateway keeps no history').waitFor();
  });

  it('draws the last day of each row of a list, with one request for all', async () => {
    const { page } = await open('', 1440);
    const asked: string[] = [];
    page.on('request', (request) => request.url().includes('/dashboard/last-days') && asked.push(request.url()));
    await page.goto(`${gateway.apiUrl}/#/devices`);
    const line = page.locator('tr', { hasText: 'cabinet-7' }).locator('svg.last-day');
    await line.waitFor();
    expect(await line.getAttribute('aria-label')).toMatch(
      /^Last 24 hours: 100 requests, online 97\.\d+ % of the known time$/,
    );
    expect(await page.locator('svg.last-day').count()).toBeGreaterThan(30);
    expect(asked).toHaveLength(1);
    // Three hours of 72 pixels for the day.
    const unknown = await line.locator('.unknown').getAttribute('d');
    expect(unknown?.match(/M/g)).toHaveLength(3);
    expect(await line.locator('.offline').count()).toBe(1);
  });
});
