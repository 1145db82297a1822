import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { DeviceRow } from '../../src/gateway/store/devices.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { addDevices, fillStore, openDashboard } from '../support/dashboard.ts';
import { domainRow } from '../support/domain-row.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { NameServer } from '../support/name-server.ts';
import { unless } from '../support/requirements.ts';

const DOMAINS = 10_000;
/** The document of a list of 100 rows has about 1,500 elements. */
const MAX_ELEMENTS = 3_000;

describe('the dashboard of a large gateway', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  let dns: NameServer;
  let sample: string;

  beforeAll(async () => {
    dns = await NameServer.start();
    const acme = {
      // Nobody listens there: DNS is checked first.
      directoryUrl: 'https://127.0.0.1:9/directory',
      contactEmail: null,
      externalAccountBinding: null,
      trust: null,
      resolvers: [dns.address],
      ownNames: 'none' as const,
    };
    [browser, gateway] = await Promise.all([
      launchBrowser('gateway.test'),
      startTestGateway({ domain: 'gateway.test', acme }),
    ]);
    await reserveMany(gateway.store);
    sample = (await fillStore(gateway.store, 'text')).devices;
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
    await dns.stop();
  });

  it('shows 10,000 domains in few elements, and finds one of them while one types', async () => {
    const { page } = await openDashboard(browser, gateway, 'domains');
    const rows = page.locator('tbody tr');
    await rows.nth(99).waitFor();
    expect(await elements(page)).toBeLessThan(MAX_ELEMENTS);
    await page.getByRole('button', { name: 'Show more' }).click();
    await rows.nth(199).waitFor();
    const search = page.getByRole('searchbox', { name: 'Search domains' });
    await search.pressSequentially('host-17.');
    await page.getByRole('row', { name: /host-17\.example\.com/ }).waitFor({ timeout: 60_000 });
    await page.getByText('Searching').waitFor({ state: 'detached', timeout: 60_000 });
    expect(await rows.count()).toBe(1);
    await search.fill('host-');
    await rows.nth(99).waitFor();
    expect(await elements(page)).toBeLessThan(MAX_ELEMENTS);
    // The search is still there after a look at one item.
    await search.fill('host-9999.');
    await page.getByRole('link', { name: /host-9999/ }).click();
    await page.getByRole('heading', { name: 'host-9999.example.com' }).waitFor();
    await page.goBack();
    await rows.first().waitFor();
    expect(await search.inputValue()).toBe('host-9999.');
    await search.fill('nothing like it');
    await page.getByText('Nothing matches “nothing like it”.').waitFor();
  }, 180_000);

  it('counts what needs attention in one request, leads to all of it, and asks for no list again', async () => {
    await addDevices(gateway.store, sample, 499);
    const { page } = await openDashboard(browser, gateway);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await page.reload();
    const all = page.getByRole('link', { name: 'And 490 more: Devices, “Offline”' });
    await all.waitFor();
    expect(await page.locator('.problems .card').count()).toBeLessThan(20);
    const data = asked.filter((path) => path !== '/' && !path.startsWith('/assets/'));
    expect([...new Set(data)].sort()).toEqual(['/dashboard/events', '/dashboard/overview', '/dashboard/session']);
    expect(await seriousProblems(page)).toEqual([]);
    await all.click();
    const search = page.getByRole('searchbox', { name: 'Search devices' });
    await page.getByText('Searching').waitFor({ state: 'detached' });
    expect(await page.getByLabel('State').inputValue()).toBe('offline');
    await page.locator('tbody tr', { hasText: 'Offline' }).nth(99).waitFor();
    expect(await page.locator('tbody tr', { hasNotText: 'Offline' }).count()).toBe(0);
    await search.fill('nothing like it');
    await page.getByText('Nothing matches “nothing like it”.').waitFor();
    await page.reload();
    await page.getByText('Nothing matches “nothing like it”.').waitFor();
  });

  it('asks whether it is signed in while its scripts load, once, and for a list as soon as it knows', async () => {
    const { page } = await openDashboard(browser, gateway, 'devices');
    await page.getByText('Live', { exact: true }).waitFor();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    const isAsked = page.waitForRequest('**/dashboard/session');
    await page.route('**/assets/*.js', async (route) => {
      await isAsked;
      await route.continue();
    });
    await page.reload();
    await page.locator('.section-head').waitFor();
    expect(asked.filter((path) => path === '/dashboard/session')).toHaveLength(1);
  });

  it('loads a changed item and a new one alone, and no list again', async () => {
    const { store } = gateway;
    const { page } = await openDashboard(browser, gateway, 'devices');
    const rows = page.locator('tbody tr');
    await rows.first().waitFor();
    // Not among the devices that need attention, which another test counts.
    const status = 'revoked' as const;
    const [known] = await addDevices(store, sample, 1, { name: 'newcomer', status });
    await rows.first().filter({ hasText: 'newcomer' }).waitFor();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    const change = (name: string) => store.devices.update({ ...(known as DeviceRow), name });
    await store.database.write(() => change('renamed'));
    await rows.first().filter({ hasText: 'renamed' }).waitFor();
    const [next] = await addDevices(store, sample, 1, { name: 'another', status });
    await rows.first().filter({ hasText: 'another' }).waitFor();
    await rows.nth(1).filter({ hasText: 'renamed' }).waitFor();
    const lists = asked.filter((path) => path.startsWith('/devices'));
    expect(lists).toEqual([`/devices/${known?.id}`, `/devices/${next?.id}`]);
  });

  it('leads from a domain to a code for devices with the keyboard alone, and checks DNS on the way', async () => {
    const { page, troubles } = await openDashboard(browser, gateway);
    await tabTo(page, 'Add a site');
    await page.keyboard.press('Enter');
    await page.getByLabel('Domain of the site').waitFor();
    await tabTo(page, 'Domain of the site');
    await page.keyboard.type('site.example.org');
    await page.keyboard.press('Enter');
    await page.getByText('*.site.example.org is reserved.').waitFor();
    await tabTo(page, 'Check DNS');
    await page.keyboard.press('Enter');
    await page.getByText('Found: no such record.').nth(1).waitFor();
    const domain = gateway.store.reservedDomains.byName('*.site.example.org');
    const shown = await page.locator('.record pre').allTextContents();
    for (const line of shown) {
      const [name = '', , , , target = ''] = line.split(' ');
      dns.cname(name.replace(/\.$/, ''), target.replace(/\.$/, ''));
    }
    expect(shown).toHaveLength(2);
    // The button keeps the focus.
    await page.getByRole('button', { name: 'Check again' }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByText('In place', { exact: true }).nth(1).waitFor();
    await tabTo(page, 'Create code');
    await page.keyboard.press('Enter');
    const command = await page.locator('.step pre', { hasText: 'join' }).textContent();
    expect(command).toMatch(/^echo join-\S+ \| sudo device-agent join -$/);
    expect(domain?.policy?.authority).toBe('letsencrypt');
    expect(gateway.store.enrolmentKeys.page(null, 1)).toMatchObject([{ site: 'site.example.org' }]);
    // Back at the address, the workflow continues.
    await page.reload();
    await page.getByText('*.site.example.org is reserved.').waitFor();
    expect(troubles).toEqual([]);
  }, 120_000);
});

async function reserveMany(store: Store): Promise<void> {
  await store.database.write(() => {
    for (let number = 0; number < DOMAINS; number += 1) {
      store.reservedDomains.insert(domainRow(store, `host-${number}.example.com`, null));
    }
  });
}

function elements(page: Page): Promise<number> {
  return page.evaluate('document.querySelectorAll("*").length');
}

/** Presses Tab until what has the focus has this name. */
async function tabTo(page: Page, name: string): Promise<void> {
  const focused = `(() => {
    const { activeElement: element } = document;
    return (element.ariaLabel ?? element.labels?.[0]?.textContent ?? element.textContent).trim();
  })()`;
  for (let presses = 0; presses < 80; presses += 1) {
    await page.keyboard.press('Tab');
    if ((await page.evaluate(focused)) === name) return;
  }
  throw new Error(`Tab never reaches ${name}`);
}
