import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { addPerson } from '../../src/gateway/sign-in/manage-sign-ins.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { openDashboard } from '../support/dashboard.ts';
import { startTestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { startHttpService } from '../support/http-service.ts';
import { exchange } from '../support/https-exchange.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const PHONE = { viewport: { width: 360, height: 740 } };

describe('who may come in to a tunnel', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let agent: AgentProcess;
  let url: string;
  const folder = sharedFolder();

  beforeAll(async () => {
    [browser, agent] = [await launchBrowser(), AgentProcess.start(folder)];
    url = await agent.ready();
  });
  afterAll(async () => {
    await browser.close();
    await agent.end();
  });

  /** A tunnel, and the device's page with it, as wide as a phone. */
  async function pageWith(name: string): Promise<{ page: Page; troubles: string[]; address: string }> {
    const service = await startHttpService((_, res) => void res.end('hello from the device'));
    onTestFinished(() => service.close());
    const answer = await fetch(`${url}/tunnels`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ forwards_to: service.url, domain: `${name}.localhost` }),
    });
    const { url: address } = (await answer.json()) as { url: string };
    onTestFinished(async () => void (await fetch(`${url}/tunnels/${name}`, { method: 'DELETE' })));
    return { ...(await openPage(browser, url, PHONE)), address };
  }

  const isWithinPhone = (page: Page) => page.evaluate('document.documentElement.scrollWidth <= window.innerWidth');

  it('is shown and changed by one click, which writes a policy that one sees before it is saved', async () => {
    const { page, troubles, address } = await pageWith('access');
    await page.getByRole('link', { name: 'Everyone with the URL' }).click();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await page.getByLabel('Who may come in', { exact: true }).selectOption('password');
    await until(async () => (await editor.inputValue()).includes('basic-auth'), 'the policy');
    const password = await page.locator('.notice code').last().textContent();
    expect(await editor.inputValue()).toContain(`guest:${password}`);
    expect(await seriousProblems(page)).toEqual([]);
    expect(await isWithinPhone(page)).toBe(true);
    // Browsers close dialogs at a second Escape, whatever the page says to the first.
    for (const _ of [1, 2, 3]) await page.keyboard.press('Escape');
    await page.getByRole('status').filter({ hasText: 'Escape does not close this form' }).waitFor();
    expect(await page.locator('.notice code').last().textContent()).toBe(password);
    expect(await editor.inputValue()).toContain(`guest:${password}`);
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByRole('link', { name: 'A password' }).waitFor();
    const { page: client } = await openPage(browser, url, {
      httpCredentials: { username: 'guest', password: String(password) },
    });
    expect((await client.goto(address))?.status()).toBe(200);
    expect(troubles).toEqual([]);
  });

  it('is the latest choice on a slow link, is saved only after it is written, and stays when another is refused', async () => {
    const { page } = await pageWith('slow');
    await page.getByRole('link', { name: 'Everyone with the URL' }).click();
    const menu = page.getByLabel('Who may come in', { exact: true });
    await menu.locator('[value=link]').waitFor({ state: 'attached' });
    let answer = () => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    await page.route('**/page/policy', (route) => held.then(() => route.continue()));
    await menu.selectOption('password');
    await menu.selectOption('link');
    const save = page.getByRole('button', { name: 'Save policy' });
    await save.click({ force: true });
    answer();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await until(async () => (await editor.inputValue()).includes('gateway-share-links'), 'the policy');
    const policy = await editor.inputValue();
    expect(policy).not.toContain('basic-auth');
    await editor.fill('on_http_request: [');
    await menu.selectOption('password');
    await expect.poll(() => menu.inputValue()).toBe('link');
    await editor.fill(policy);
    await save.click();
    await page.getByRole('link', { name: 'A link', exact: true }).waitFor();
  });

  it('are people and groups of the gateway that one writes, and sees again', async () => {
    const { page, troubles } = await pageWith('listed');
    await page.getByRole('link', { name: 'Everyone with the URL' }).click();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await page.getByLabel('Who may come in', { exact: true }).selectOption('sign-in');
    await page.getByLabel('People', { exact: true }).fill('jo@example.com\n\nann@example.com');
    await page.getByLabel('Groups', { exact: true }).fill('family');
    await until(async () => (await editor.inputValue()).includes('- family'), 'the group');
    expect(await editor.inputValue()).toContain('- jo@example.com\n            - ann@example.com');
    expect(await seriousProblems(page)).toEqual([]);
    expect(await isWithinPhone(page)).toBe(true);
    await page.getByRole('button', { name: 'Save policy' }).click();
    const card = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'listed' }) });
    await card.getByText('jo@example.com, ann@example.com may not come in: unknown to this gateway').waitFor();
    await page.getByRole('link', { name: 'People who sign in' }).click();
    await expect.poll(() => page.getByLabel('Groups', { exact: true }).inputValue()).toBe('family');
    await page.getByLabel('People', { exact: true }).fill('');
    await until(async () => !(await editor.inputValue()).includes('people'), 'the policy without people');
    expect(await editor.inputValue()).toContain('- family');
    expect(troubles).toEqual([]);
  });

  it('changes with the first share link, which opens by its button, and which one sees and revokes', async () => {
    const { page, troubles, address } = await pageWith('shared');
    await page.getByRole('link', { name: 'Share: shared' }).click();
    await page.getByText('Everyone with the URL can come in now.').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    expect(await isWithinPhone(page)).toBe(true);
    await page.getByLabel('For', { exact: true }).fill('Jo');
    await page.getByRole('button', { name: 'Change policy and make link' }).click();
    const link = String(await page.locator('dialog .url').textContent());
    expect(link).toContain(`${address}/ngrok/share/`);
    expect(await isWithinPhone(page)).toBe(true);
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('link', { name: 'A link', exact: true }).waitFor();

    // Without JavaScript.
    const { page: client } = await openPage(browser, url, { ...PHONE, javaScriptEnabled: false });
    expect((await client.goto(address))?.status()).toBe(403);
    await client.goto(link);
    await client.getByText('shared.localhost').waitFor();
    await client.getByRole('button', { name: 'Open' }).dblclick();
    await client.getByText('hello from the device').waitFor();
    expect(new URL(client.url()).pathname).toBe('/');

    await page.getByRole('link', { name: 'Share: shared' }).click();
    await page.getByText('opened by 1 of 1').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Revoke: Jo' }).press('Enter');
    await page.getByRole('button', { name: 'Revoke: Jo' }).waitFor({ state: 'detached' });
    expect(await page.locator(':focus').textContent()).toBe('Share shared');
    expect((await client.goto(address))?.status()).toBe(403);
    expect(troubles).toEqual([]);
  });
});

describe('people who may come in, in the dashboard', unless(NO_CHROMIUM), () => {
  it('are chosen among those of the gateway', async () => {
    const [browser, gateway] = [await launchBrowser(), await startTestGateway()];
    onTestFinished(async () => {
      await browser.close();
      await gateway.close();
    });
    await gateway.store.database.write(() => {
      addPerson(gateway.store, { email: 'jo@example.com', name: 'Jo', groups: ['family'] });
      addPerson(gateway.store, { email: 'ann@example.com', groups: ['family', 'staff'] });
    });
    const hello = { type: 'custom-response', config: { body: 'hello' } };
    const traffic_policy = JSON.stringify({ on_http_request: [{ actions: [hello] }] });
    const api = await GatewayClient.of(gateway);
    const { body } = await api.call('POST', '/endpoints', { url: 'https://app.localhost', traffic_policy });
    const { page, troubles } = await openDashboard(browser, gateway, `endpoints/${body.id}`, PHONE);
    await page.getByRole('link', { name: 'Who may come in' }).click();
    await page.getByLabel('Who may come in', { exact: true }).selectOption('sign-in');
    await page.getByLabel('jo@example.com').check();
    await page.getByLabel('staff').check();
    const policy = page.getByRole('textbox', { name: 'Traffic policy' });
    await until(async () => (await policy.inputValue()).includes('staff'), 'the policy');
    expect(await seriousProblems(page)).toEqual([]);
    expect(await page.evaluate('document.documentElement.scrollWidth <= window.innerWidth')).toBe(true);
    await page.getByRole('button', { name: 'Save policy' }).click();
    const which = page.getByRole('definition').filter({ hasText: 'Group staff' });
    await which.filter({ hasText: 'jo@example.com' }).waitFor();
    await page.getByRole('link', { name: 'Who may come in' }).click();
    await page.getByLabel('staff').uncheck();
    await until(async () => !(await policy.inputValue()).includes('staff'), 'the policy without the group');
    expect(await page.getByLabel('jo@example.com').isChecked()).toBe(true);
    await page.getByRole('button', { name: 'Save policy' }).click();
    await which.waitFor({ state: 'detached' });
    const stored = (await api.call('GET', `/endpoints/${body.id}`)).body;
    expect(stored.people).toEqual({ everyone: false, emails: ['jo@example.com'], groups: [] });
    expect(troubles).toEqual([]);
  });
});

describe('share links in the dashboard', unless(NO_CHROMIUM), () => {
  it('are no way in to an internal endpoint, whose form says who reaches it', async () => {
    const [browser, gateway] = [await launchBrowser(), await startTestGateway()];
    onTestFinished(async () => {
      await browser.close();
      await gateway.close();
    });
    const traffic_policy = JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] });
    const api = await GatewayClient.of(gateway);
    const { body } = await api.call('POST', '/endpoints', { url: 'https://app.internal', traffic_policy });
    const { page } = await openDashboard(browser, gateway, `endpoints/${body.id}`, PHONE);
    await page.getByRole('link', { name: 'Who may come in' }).click();
    await page.getByLabel('Who may come in', { exact: true }).selectOption('everyone');
    await page.getByText('Everyone whom other endpoints forward here.', { exact: true }).waitFor();
    expect(await page.getByText('Everyone with the URL').count()).toBe(0);
    // Escape closes what nobody has filled in.
    await page.getByRole('button', { name: 'Close', exact: true }).click();
    await page.getByRole('link', { name: 'Who may come in' }).click();
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  it('are made on the page of an endpoint, whose access it says, then listed and revoked', async () => {
    const [browser, gateway] = [await launchBrowser(), await startTestGateway()];
    onTestFinished(async () => {
      await browser.close();
      await gateway.close();
    });
    const url = 'https://cloud.localhost';
    const actions = [{ type: 'gateway-share-links' }, { type: 'custom-response', config: { body: 'hello' } }];
    const api = await GatewayClient.of(gateway);
    await api.call('POST', '/endpoints', { url, traffic_policy: JSON.stringify({ on_http_request: [{ actions }] }) });
    const { page, troubles } = await openDashboard(browser, gateway, 'endpoints', PHONE);
    await page.getByText('A link', { exact: true }).waitFor();
    await page.getByRole('link', { name: url }).first().click();
    await page.getByRole('link', { name: 'Who may come in' }).click();
    await page.getByLabel('Who may come in', { exact: true }).selectOption('password');
    const policy = page.getByRole('textbox', { name: 'Traffic policy' });
    await until(async () => (await policy.inputValue()).includes('basic-auth'), 'the policy');
    await page.getByLabel('A link lets people in, too').check();
    await until(async () => (await policy.inputValue()).includes('share-links'), 'the links');
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByRole('definition').filter({ hasText: 'A password, or a link' }).waitFor();
    expect((await exchange(url.replace('.localhost', `.localhost:${gateway.httpsPort}`))).status).toBe(401);
    await page.getByRole('link', { name: 'Share', exact: true }).click();
    await page.getByLabel('Description').fill('Jo');
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Share', exact: true }).click();
    const link = String(await page.locator('dialog pre').textContent());
    expect((await exchange(link)).status).toBe(200);
    await page.getByRole('button', { name: 'Done' }).click();
    await page.goto(`${gateway.apiUrl}/#/share-links`);
    await page.getByText('0 of 1').waitFor();
    expect((await exchange(link, { method: 'POST' })).status).toBe(303);
    await page.getByText('1 of 1').waitFor();
    await page.getByRole('link', { name: url }).first().click();
    await page.getByRole('link', { name: 'Revoke' }).click();
    await page.getByRole('button', { name: 'Revoke link' }).click();
    await page.getByText('No share links', { exact: true }).waitFor();
    expect((await exchange(link)).status).toBe(403);
    expect(troubles).toEqual([]);
  });
});
