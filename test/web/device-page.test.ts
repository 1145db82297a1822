import { mkdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { dirname, join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { makeFolder, temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const PHONE = { width: 360, height: 740 };
const DESKTOP = { width: 1280, height: 900 };
const MAX_BYTES = 60 * 1024;

/** What clients of an API and logs could plant. None of it may run. */
const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '"><svg onload=alert(1)>',
  "javascript:alert(1)//'",
  '{{constructor.constructor("alert(1)")()}}',
  '\u202eevil\u2028',
];

describe("the device's page", unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let agent: AgentProcess;
  let url: string;
  let remote: string;
  const [folder, removeFolder] = makeFolder();

  beforeAll(async () => {
    [browser, agent] = [await launchBrowser(), AgentProcess.start(folder)];
    url = await agent.ready();
    remote = String((await agent.logged('remote API online')).url);
  });
  afterEach(async () => {
    const tunnels = (await (await call('GET', '/tunnels')).json()) as { url: string }[];
    for (const each of tunnels) await call('DELETE', `/tunnels/${encodeURIComponent(each.url)}`);
  });
  afterAll(async () => {
    await browser.close();
    await agent.end();
    removeFolder();
  });

  const call = (method: string, path: string, body?: object) =>
    fetch(url + path, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  const tunnel = async (body: object): Promise<void> => {
    const created = await call('POST', '/tunnels', body);
    expect(await created.json()).toMatchObject({ url: expect.any(String) });
  };
  const upstream = async (): Promise<string> => {
    const service = await startHttpService((_, res) => void res.end('hello'));
    onTestFinished(() => service.close());
    return new URL(service.url).port;
  };

  it('does the tour: starts a tunnel, shows it as QR code, changes its policy and deletes it', async () => {
    const { page, troubles } = await openPage(browser, url);
    await page.getByRole('heading', { name: 'Online' }).waitFor();
    await page.getByText('No tunnels yet').waitFor();
    expect(await seriousProblems(page)).toEqual([]);

    const port = await upstream();
    await page.getByRole('link', { name: 'Start tunnel' }).click();
    // Detected, because it listens.
    const detected = page.getByRole('button', { name: port, exact: true });
    await detected
      .or(page.getByRole('button', { name: /^All / }))
      .first()
      .click();
    if (await detected.isVisible()) await detected.click();
    await page.getByRole('textbox', { name: 'Domain' }).fill('tour.localhost');
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    const link = page.getByRole('link', { name: /^https:\/\/tour\.localhost/ });
    const address = (await link.getAttribute('href')) ?? '';
    expect(await status(page, address)).toBe(200);

    await page.getByRole('link', { name: 'QR code: tour' }).click();
    await page
      .getByRole('img', { name: `QR code: ${address}` })
      .locator('path[d^=M]')
      .waitFor();
    await page.keyboard.press('Escape');

    await page.getByRole('link', { name: 'Policy: tour' }).click();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await editor.fill(
      'on_http_request:\n  - actions:\n      - type: custom-response\n        config: {status_code: 418, body: teapot}\n',
    );
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByText('own policy').waitFor();
    await page.getByRole('link', { name: 'Policy: tour' }).click();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Cancel' }).click();
    expect(await status(page, address)).toBe(418);

    await page.getByRole('link', { name: 'Delete: tour' }).click();
    await page.getByText(`${address}: clients get an error from now on.`).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Delete tunnel' }).click();
    await page.getByText('No tunnels yet').waitFor();
    expect(await (await call('GET', '/tunnels')).json()).toEqual([]);
    expect(troubles).toEqual([]);
  });

  it('shows problems at their fields and lines', async () => {
    const { page } = await openPage(browser, `${url}/#/start`);
    await page.getByLabel('Forward to').fill('http://user@host');
    await page.getByRole('textbox', { name: 'Domain' }).fill('*.example.com');
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    const described = async (label: string) => {
      const ids = (await page.getByRole('textbox', { name: label }).getAttribute('aria-describedby')) ?? '';
      return page.locator(`[id="${ids.split(' ')[1]}"]`).textContent();
    };
    await page.getByRole('alert').filter({ hasText: 'The tunnel was not started' }).waitFor();
    expect(await described('Domain')).toContain('wildcards are not supported');
    expect(await described('Forward to')).not.toBe('');

    await page.getByLabel('Forward to').fill('8001');
    await page.getByRole('textbox', { name: 'Domain' }).fill('broken.localhost');
    await page.getByRole('button', { name: 'Add a traffic policy' }).click();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await editor.fill('on_http_request:\n  - actions:\n      - type: denyy\n');
    await page.getByRole('button', { name: 'Line 3' }).click();
    await page.getByText('unknown action "denyy"').waitFor();
    // Only the gateway knows the variables.
    await editor.fill('on_http_request:\n  - expressions:\n      - req.nothing == 1\n    actions: [{type: deny}]\n');
    await page.getByText('unknown action "denyy"').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    await page.getByRole('button', { name: 'Line 3' }).waitFor();
    expect(await page.getByText('unknown variable req.nothing').count()).toBeGreaterThan(0);
    expect(await seriousProblems(page)).toEqual([]);
  });

  it('works with the keyboard alone', async () => {
    const { page } = await openPage(browser, url);
    await page.getByText('No tunnels yet').waitFor();
    const focusOn = async (name: string) => {
      for (let n = 0; n < 20; n++) {
        await page.keyboard.press('Tab');
        const text = await page.evaluate(
          'document.activeElement === document.body || document.activeElement.textContent',
        );
        if (String(text).includes(name)) return;
      }
      throw new Error(`Tab does not lead to ${name}`);
    };
    await focusOn('Start tunnel');
    await page.keyboard.press('Enter');
    await page.getByLabel('Forward to').waitFor();
    expect(await page.evaluate('document.activeElement.tagName')).toBe('INPUT');
    await page.keyboard.type('8001');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: /^Delete: / }).waitFor();
    await focusOn('Delete');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    // Where it was before.
    expect(await page.evaluate('document.activeElement.tagName + document.activeElement.textContent')).toBe('ADelete');
    await page.keyboard.press('Enter');
    await focusOn('Delete tunnel');
    await page.keyboard.press('Enter');
    await page.getByText('No tunnels yet').waitFor();
  });

  it('says when the agent is gone, and recovers automatically', async () => {
    const place = temporaryFolder();
    let other = AgentProcess.start(place);
    onTestFinished(async () => void (await other.end('SIGKILL')));
    const address = await other.ready();
    await fetch(`${address}/tunnels`, {
      method: 'POST',
      body: '{"forwards_to":"8001","domain":"stays.localhost"}',
      headers: { 'content-type': 'application/json' },
    });
    const { page, troubles } = await openPage(browser, address);
    await page.getByText('stays.localhost').waitFor();
    await other.end('SIGKILL');
    await page.getByRole('heading', { name: 'No answer from the agent' }).waitFor();
    await page.getByText('Showing what was known').waitFor();
    // What was known stays readable.
    expect(await page.getByText('stays.localhost').count()).toBe(1);
    expect(await seriousProblems(page)).toEqual([]);
    other = AgentProcess.start(place, { AGENT_PORT: new URL(address).port });
    await other.ready();
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    expect(troubles).toEqual([]);
  });

  it('says why the device is offline, and what to do', async () => {
    const closed = createTcpServer().listen(0, '127.0.0.1');
    await until(() => closed.listening, 'a port');
    const { port } = closed.address() as AddressInfo;
    closed.close();
    const place = temporaryFolder();
    const env = { NGROK_AUTHTOKEN: 'any', NGROK_SERVER_ADDR: `127.0.0.1:${port}`, AGENT_PORT: '0' };
    const offline = AgentProcess.start(place, env);
    onTestFinished(async () => void (await offline.end('SIGKILL')));
    const { page } = await openPage(browser, await offline.api(), { colorScheme: 'dark' });
    await page.getByText('ECONNREFUSED').first().waitFor();
    await page.getByRole('heading', { name: 'What to do' }).waitFor();
    await page.getByText('check that the gateway is running').first().waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('link', { name: 'Diagnose' }).click();
    await page.getByText(/problems? found/).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
  });

  it('signs in with the API token once, and out everywhere', async () => {
    const token = readToken(folder);
    const { page, troubles } = await openPage(browser, remote);
    await page.getByLabel('API token').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('wrong API token').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByLabel('API token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    await page.reload();
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    // Scripts see neither the cookie nor the token.
    const visible = await page.evaluate(
      'document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.documentElement.outerHTML',
    );
    expect(visible).not.toContain(token);
    expect(visible).not.toContain('__Host-');
    const second = await page.context().newPage();
    await second.goto(remote);
    await second.getByRole('heading', { name: /^Online/ }).waitFor();
    await page.getByText('Sign out').first().click();
    await page.getByRole('button', { name: 'Sign out everywhere' }).click();
    await page.getByLabel('API token').waitFor();
    await second.reload();
    await second.getByLabel('API token').waitFor();
    expect(troubles).toEqual([]);
  });

  it('signs in by a link that works once, and takes its code out of address and history', async () => {
    const { stdout } = await deviceAgent(['page', '--json'], folder, { AGENT_PORT: new URL(url).port });
    const { link } = JSON.parse(stdout);
    const code = link.split('#code=')[1];
    const { page, troubles } = await openPage(browser, link);
    const sent: string[] = [];
    page.on('request', (request) => sent.push(request.url()));
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    expect(page.url()).toBe(`${remote}/`);
    await page.goto(`${remote}/#/doctor`);
    await page.goBack();
    expect(page.url()).not.toContain(code);
    expect(sent.filter((address) => address.includes(code))).toEqual([]);
    const again = await openPage(browser, link);
    await again.page.getByText('link used or expired').waitFor();
    expect(again.page.url()).not.toContain(code);
    expect(troubles).toEqual([]);
  });

  it.each([
    ['phone', PHONE],
    ['desktop', DESKTOP],
  ])(
    'shows long and hostile content on a %s as text, without running it or scrolling sideways',
    async (_, viewport) => {
      const label = 'a-very-long-label-of-sixty-characters-that-does-not-end-soon';
      const domain = `${[label, label, label].join('.')}.localhost`;
      const rules = HOSTILE.map((name) => ({ name, actions: [{ type: 'deny' }] }));
      await tunnel({ forwards_to: '8001', domain, policy: { on_http_request: rules } });
      const socket = join(temporaryFolder(), '<img/src=x/onerror=alert(1)>');
      mkdirSync(dirname(socket), { recursive: true });
      const service = createTcpServer().listen(socket);
      onTestFinished(() => void service.close());
      await until(() => service.listening, 'the socket');
      await tunnel({ forwards_to: `unix:${socket}`, domain: 'hostile.localhost' });
      const { page, troubles } = await openPage(browser, url, { viewport });
      await page.getByText(domain).first().waitFor();
      await page.getByText(socket).waitFor();
      await page
        .getByRole('link', { name: /^Policy: / })
        .first()
        .click();
      await page.getByRole('textbox', { name: 'Traffic policy' }).waitFor();
      await until(async () => (await page.getByRole('textbox').inputValue()).includes('<script>'), 'the policy', {
        withinMs: 15_000,
        everyMs: 50,
      });
      const overflow = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';
      expect(await page.evaluate(overflow)).toBe(0);
      await page.keyboard.press('Escape');
      await page.getByRole('link', { name: 'Start tunnel' }).click();
      for (const text of HOSTILE) {
        await page.getByLabel('Forward to').fill(text);
        await page.getByRole('textbox', { name: 'Domain' }).fill(text);
        await page.getByRole('button', { name: 'Start tunnel' }).click();
        await page.getByText('The tunnel was not started').waitFor();
      }
      expect(await page.evaluate(overflow)).toBe(0);
      expect(await seriousProblems(page)).toEqual([]);
      expect(troubles).toEqual([]);
    },
  );

  it('cannot be framed, and runs no script but its own', async () => {
    const framing = createServer((_, res) => {
      res.setHeader('content-type', 'text/html');
      res.end(`<iframe src="${url}/"></iframe>`);
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void framing.close());
    await until(() => framing.listening, 'the framing site');
    const { page } = await openPage(browser, `http://localhost:${(framing.address() as AddressInfo).port}`);
    const [, frame] = page.frames();
    expect(await frame?.locator('main').count()).toBe(0);

    const own = await openPage(browser, url);
    await own.page.evaluate(`try { document.body.innerHTML = '<img src=x onerror="window.ran = 1">' } catch {}`);
    await own.page.evaluate(`const script = document.createElement('script'); script.append('window.ran = 1');
      document.body.append(script)`);
    expect(await own.page.evaluate('window.ran')).toBeUndefined();
    expect(own.troubles.length).toBeGreaterThan(0);
  });

  it(`takes at most ${MAX_BYTES / 1024} KiB in all, and each file once`, async () => {
    const { page } = await openPage(browser, url);
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    await tunnel({ forwards_to: '8001', domain: 'size.localhost' });
    await page.getByRole('link', { name: 'QR code: size' }).click();
    await page.locator('.qr path[d^=M]').waitFor();
    const bytes = (await page.evaluate(`
      [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
        .filter(({ name }) => !name.includes('/page/'))
        .map(({ name, encodedBodySize }) => [name, encodedBodySize])`)) as [string, number][];
    expect(bytes.length).toBeGreaterThanOrEqual(4);
    expect(bytes.reduce((sum, [, size]) => sum + size, 0)).toBeLessThanOrEqual(MAX_BYTES);
  });
});

/** Opens an address in another tab, and returns the status of the answer. */
async function status(page: Page, address: string): Promise<number | undefined> {
  const tab = await page.context().newPage();
  const answer = await tab.goto(address);
  await tab.close();
  return answer?.status();
}

function readToken(folder: string): string {
  return readFileSync(join(folder, 'data/api-token'), 'utf8').trim();
}
