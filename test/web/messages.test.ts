import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { statusFile } from '../../src/gateway/status-pages/status-view.ts';
import { MessageRuleCreate } from '../../src/management/resources/message-rule.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { openDashboard } from '../support/dashboard.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';

const WIDTHS = [360, 1440];
const OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';

describe('who is told of what', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;

  beforeAll(async () => {
    [browser, gateway] = await Promise.all([launchBrowser(), startTestGateway({ historyDays: 395 })]);
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
  });

  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
  const link = (page: Page, name: string) => page.getByRole('link', { name, exact: true });

  /** At each width and in each scheme: nothing too wide, nothing that people cannot read. */
  async function examine(page: Page, name: string, within?: string): Promise<void> {
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      expect([name, width, await page.evaluate(OVERFLOW)]).toEqual([name, width, 0]);
      expect(await seriousProblems(page, within)).toEqual([]);
    }
  }

  it('is chosen by rules for a new destination, which one can change', async () => {
    const { page, troubles } = await openDashboard(browser, gateway, 'event-destinations/new');
    await page.getByRole('radio', { name: 'ntfy' }).click();
    await page.getByLabel('URL').fill('https://ntfy.sh/quarry');
    await button(page, 'Create event destination').click();
    await link(page, 'Add the usual rules').click();
    await button(page, 'Add the usual rules').click();
    await examine(page, 'destination');
    await page.locator('tbody').getByRole('link', { name: 'Devices that are offline' }).click();
    await page.locator('.facts').getByText('A device is offline').waitFor();
    await examine(page, 'rule');
    await link(page, 'Edit').click();
    await page.getByLabel('Sites').fill('quarry.example.com');
    await page.getByLabel('Quiet hours', { exact: true }).fill('22-7');
    await button(page, 'Save').click();
    await page.locator('.problem', { hasText: '22:00-07:00 Europe/Berlin' }).waitFor();
    await page.getByLabel('Quiet hours', { exact: true }).fill('22:00-07:00 Europe/Berlin');
    await examine(page, 'rule-form', 'dialog');
    await button(page, 'Save').click();
    await page.locator('.facts').getByText('22:00-07:00 Europe/Berlin').waitFor();
    const rules = gateway.store.messageRules.page(null, 10);
    expect(rules.find(({ conditions }) => conditions.includes('device_offline'))).toMatchObject({
      sites: ['quarry.example.com'],
      after_minutes: 10,
    });
    await page.goto(`${gateway.apiUrl}/#/message-rules`);
    await page.locator('tbody tr').nth(2).waitFor();
    await examine(page, 'rules');
    expect(troubles).toEqual([]);
  });

  it('is acknowledged and silenced where it says who was told, and why not', async () => {
    const { database, conditionHistory, messageRules, ids, now } = gateway.store;
    const rule = MessageRuleCreate.parse({ sites: ['quarry.example.com'] });
    await database.write(() => {
      messageRules.insert({ id: ids.next('mr'), created_at: now(), ...rule, metadata: null, description: 'night' });
      conditionHistory.insert(
        conditionHistory.newRow({
          ...{ id: ids.next('cnd'), created_at: now(), condition: 'device_offline', subject: 'dev_1', name: 'cam-1' },
          ...{ site: 'pit.example.com', labels: {}, severity: 'warning', message: 'offline since yesterday' },
          ...{ remedy: 'check its power and its network', began_at: now(), comes_and_goes: false, settled: false },
          ...{ told: [], withheld: [] },
        }),
      );
    });
    const { page } = await openDashboard(browser, gateway, 'condition-history');
    await page.locator('tbody tr').first().waitFor();
    await examine(page, 'conditions');
    await page
      .getByRole('link', { name: /^A device is offline/ })
      .first()
      .click();
    // The rule of the other test may be there, too.
    await page.getByText('nobody is told, because it is for other sites than pit.example.com').first().waitFor();
    await link(page, 'Acknowledge').click();
    await button(page, 'Acknowledge').click();
    await page.locator('.facts').getByText('Acknowledged by').waitFor();
    await link(page, 'Silence').click();
    await page.getByRole('radio', { name: '8 hours' }).click();
    await button(page, 'Silence').click();
    await page.locator('.facts').getByText('Silenced until').waitFor();
    // By the clock of the browser, whose time zone the message has.
    await page
      .locator('.facts')
      .getByText(/\d\d:\d\d (UTC|GMT[+\d:]*|[A-Z]{3,4}), in [78] h/)
      .waitFor();
    await examine(page, 'condition');
    expect(conditionHistory.page(null, 1)).toMatchObject([
      { acknowledged_by: expect.any(String), silenced_until: expect.any(String) },
    ]);
  });

  it('may be everybody: a status page is created, read without a script, and changed', async () => {
    const { page } = await openDashboard(browser, gateway, 'endpoints');
    await link(page, 'Create status page').click();
    await page.getByLabel('URL of the page').fill('https://status.localhost');
    await page.getByLabel('Title of the page').fill('Quarry');
    await page
      .getByRole('textbox', { name: 'Endpoints', exact: true })
      .fill('https://cam.localhost Camera at the gate\nhttps://till.localhost Cash desk');
    await examine(page, 'status-form', 'dialog');
    await button(page, 'Create status page').click();
    await link(page, 'Edit status page').waitFor();
    const at = `https://status.localhost:${gateway.httpsPort}/`;
    const reader = await openPage(browser, at, { javaScriptEnabled: false });
    await reader.page.getByRole('heading', { name: 'Camera at the gate' }).waitFor();
    expect(await reader.page.locator('.state', { hasText: 'Not known' }).count()).toBe(2);
    expect(reader.troubles).toEqual([]);
    await link(page, 'Edit status page').click();
    await page.getByRole('textbox', { name: 'Endpoints', exact: true }).fill('https://cam.localhost The camera');
    await button(page, 'Save').click();
    await page.locator('.facts').getByText('The camera').waitFor();
    await reader.page.reload();
    await reader.page.getByRole('heading', { name: 'The camera' }).waitFor();
    expect(await reader.page.getByRole('heading').count()).toBe(2);
  });

  it('reads a status page at any width, in light and dark, with all that it can say', async () => {
    const today = Date.UTC(2026, 10, 30);
    const day = (ago: number) => {
      const [known, failed] = [ago > 80 ? 0 : 86_400, ago % 17 === 3 ? 0.2 : 0];
      const share = ago % 23 === 5 ? 0.2 : ago % 11 === 4 ? 0.97 : 1;
      const state = known === 0 ? 'unknown' : share < 0.5 ? 'down' : share < 1 || failed > 0 ? 'failing' : 'up';
      return { at: today - ago * 86_400_000, state, known, online: known * share, failed } as const;
    };
    const days = Array.from({ length: 90 }, (_, at) => day(89 - at));
    const states = ['up', 'failing', 'down', 'unknown'] as const;
    const endpoints = [
      'Camera at the gate',
      'Cash desk',
      'A-name-that-is-as-long-as-names-can-be-without-a-space-in-it',
      'Weather',
    ];
    const { headers, plain } = await statusFile(
      {
        title: 'Quarry',
        text: 'Call +44 20 7946 0000 if something is missing here.',
        endpoints: endpoints.map((title) => ({ url: 'https://a', title })),
      },
      { states, days: states.map((_, at) => (at === 3 ? [] : days)), now: today + 45_296_000 },
    );
    const service = await startHttpService((_, res) => {
      for (let at = 0; at < headers.length; at += 2) res.setHeader(headers[at] ?? '', headers[at + 1] ?? '');
      res.end(plain.body);
    });
    onTestFinished(() => service.close());
    const { page, troubles } = await openPage(browser, service.url);
    await page.locator('summary').first().click();
    await page
      .getByText('1 of 4 is unavailable. Some requests to 1 of 4 fail. Nothing is known of 1 of 4 at the moment.')
      .waitFor();
    await page
      .getByRole('img', { name: /^The last 90 days: \d\d\.\d+ % available; nothing is known of 9 days$/ })
      .first()
      .waitFor();
    await examine(page, 'status');
    expect(troubles).toEqual([]);
  });
});
