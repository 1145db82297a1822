import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deviceAgent } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const PHONE = { width: 360, height: 740 };
const HOSTILE = '<img src=x onerror=alert(1)>';

/** Opens a view, whose links are behind a button on a phone. */
async function goTo(page: Page, view: string): Promise<void> {
  await page.getByRole('button', { name: /^Menu/ }).click();
  await page.getByRole('link', { name: view, exact: true }).click();
}

describe("the gateway's dashboard", unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: GatewayProcess;
  const folder = sharedFolder();

  beforeAll(async () => {
    gateway = await GatewayProcess.start(folder, { GATEWAY_DOMAIN: 'gateway.localhost' });
    browser = await launchBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await gateway.process.end();
  });

  it('does the tour: signs in by a link, reserves a domain, makes a key, signs in with it and out', async () => {
    const env = { GATEWAY_DOMAIN: 'gateway.localhost', GATEWAY_HTTPS_PORT: String(gateway.httpsPort) };
    const { stdout } = await deviceAgent(['gateway', 'dashboard', '--json'], folder, env);
    const { link, url } = JSON.parse(stdout) as { link: string; url: string };
    const { page, troubles } = await openPage(browser, url, { viewport: PHONE });
    await page.getByRole('button', { name: 'Sign in' }).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    // A phone that changes networks right now.
    await page.route('**/dashboard/session', (route) => route.abort(), { times: 1 });
    await page.goto(link);
    await page.getByText('No problems found').waitFor();
    // The code is in neither address nor history.
    expect(page.url()).toBe(`${url}/`);
    expect(await seriousProblems(page)).toEqual([]);

    // And once more.
    await page.route('**/reserved_domains', (route) => route.abort(), { times: 2 });
    await goTo(page, 'Domains');
    await page.getByText('No reserved domains yet').waitFor();
    await page.getByRole('link', { name: 'Reserve domain' }).click();
    await page.getByRole('textbox', { name: 'Domain' }).fill(HOSTILE);
    await page.getByRole('button', { name: 'Reserve domain' }).click();
    await page.getByText(/ERR_NGROK_\d+/).waitFor();
    await page.getByRole('textbox', { name: 'Domain' }).fill('*.site.example.com');
    await page.getByRole('textbox', { name: 'Description' }).fill(HOSTILE);
    await page.getByRole('button', { name: 'Reserve domain' }).click();
    await page.getByRole('heading', { name: '*.site.example.com' }).waitFor();
    await page.getByText('_acme-challenge.site.example.com. 300 IN CNAME').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.locator('.facts').getByText(HOSTILE).waitFor();
    await page.getByRole('link', { name: 'Domains', exact: true }).click();
    await page.getByRole('link', { name: '*.site.example.com' }).click();
    await page.getByRole('link', { name: 'Delete', exact: true }).click();
    await page.getByText('All endpoints at *.site.example.com go offline').waitFor();
    await page.getByRole('button', { name: 'Delete domain' }).click();
    await page.getByText('No reserved domains yet').waitFor();

    await goTo(page, 'API keys');
    await page.getByRole('link', { name: 'Create API key' }).click();
    await page.getByRole('textbox', { name: 'Description' }).fill('tour');
    await page.getByRole('button', { name: 'Create API key' }).click();
    const key = (await page.locator('dialog pre').textContent()) ?? '';
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('heading', { name: 'tour', exact: true }).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    const overflow = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
    expect(await page.evaluate(overflow)).toBe(0);

    await page.getByText('Sign out').first().click();
    await page.getByRole('button', { name: 'Sign out here' }).click();
    await page.getByLabel('API key', { exact: true }).fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'tour', exact: true }).waitFor();
    const visible = await page.evaluate(
      'document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.documentElement.outerHTML',
    );
    expect(visible).not.toContain(key);
    // Revoking the key that signed in ends the session.
    await page.getByRole('link', { name: 'Revoke', exact: true }).click();
    await page.getByText('You signed in with this key').waitFor();
    await page.getByRole('button', { name: 'Revoke API key' }).click();
    await page.getByLabel('API key', { exact: true }).waitFor();
    expect(troubles).toEqual([]);
  });

  it('does not delay the stop of the gateway, says that it is gone, and asks to sign in after the restart', async () => {
    const env = { GATEWAY_DOMAIN: 'gateway.localhost', GATEWAY_HTTPS_PORT: String(gateway.httpsPort) };
    const { stdout } = await deviceAgent(['gateway', 'dashboard', '--json'], folder, env);
    const { page, troubles } = await openPage(browser, (JSON.parse(stdout) as { link: string }).link);
    await page.getByText('Live', { exact: true }).waitFor();
    const begin = performance.now();
    expect(await gateway.process.end()).toBe(0);
    expect(performance.now() - begin).toBeLessThan(5000);
    await page.getByText('Reconnecting…', { exact: true }).waitFor();
    await gateway.restart();
    await page.getByLabel('API key', { exact: true }).waitFor();
    await page.getByText('or the gateway restarted').waitFor();
    expect(troubles).toEqual([]);
  });
});
