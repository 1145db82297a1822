import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { makeFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const PHONE = { viewport: { width: 360, height: 740 } };

describe('who may come in to a tunnel', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let agent: AgentProcess;
  let url: string;
  const [folder, removeFolder] = makeFolder();

  beforeAll(async () => {
    [browser, agent] = [await launchBrowser(), AgentProcess.start(folder)];
    url = await agent.ready();
  });
  afterAll(async () => {
    await browser.close();
    await agent.end();
    removeFolder();
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
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByRole('link', { name: 'A password' }).waitFor();
    const { page: client } = await openPage(browser, url, {
      httpCredentials: { username: 'guest', password: String(password) },
    });
    expect((await client.goto(address))?.status()).toBe(200);
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
    await page.getByRole('button', { name: 'Revoke: Jo' }).click();
    await page.getByRole('button', { name: 'Revoke: Jo' }).waitFor({ state: 'detached' });
    expect((await client.goto(address))?.status()).toBe(403);
    expect(troubles).toEqual([]);
  });
});
