import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { WebSocketServer } from 'ws';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { startHttpService } from '../support/http-service.ts';
import { freePort, serving } from '../support/loopback.ts';
import { unless } from '../support/requirements.ts';
import { selfSigned } from '../support/self-signed.ts';
import { sharedFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

describe("the device's page", unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let agent: AgentProcess;
  let url: string;
  let remote: string;
  const folder = sharedFolder();

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
  });

  const call = (method: string, path: string, body?: object) =>
    fetch(url + path, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
  const upstream = async (): Promise<string> => {
    const service = await startHttpService((_, res) => void res.end('hello'));
    onTestFinished(() => service.close());
    return new URL(service.url).port;
  };

  it('does the tour: starts a tunnel, shows it as QR code, changes its policy and deletes it', async () => {
    const { page, troubles } = await openPage(browser, url);
    await page.getByRole('heading', { name: 'Online' }).waitFor();
    await page.getByText('No tunnels yet').waitFor();
    await page.getByRole('heading', { name: hostname(), exact: true }).waitFor();
    expect(await page.title()).toBe(`${hostname()} – Device agent`);
    await page.getByText('ERR_CERT_AUTHORITY_INVALID').click();
    await page.getByText('data/gateway/ca.pem').waitFor();
    expect(await seriousProblems(page)).toEqual([]);

    const port = await upstream();
    await page.getByRole('link', { name: 'Start tunnel' }).click();
    // Detected, because it listens.
    const detected = page.getByRole('button', { name: port, exact: true });
    const all = page.getByRole('button', { name: /^All / });
    await detected.or(all).first().waitFor();
    if (!(await detected.isVisible())) await all.click();
    await detected.click();
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

    const other = await upstream();
    await page.getByRole('link', { name: 'Change: tour' }).click();
    await page.getByLabel('Forward to').fill('http://user@host');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('dialog .problem:not([hidden])').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByLabel('Forward to').fill(other);
    await page.getByRole('button', { name: 'Save' }).click();
    await page.locator('.tunnel .upstream').getByText(other).waitFor();
    expect(await status(page, address)).toBe(200);

    await page.getByRole('link', { name: 'Policy: tour' }).click();
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    // The default policies have other names for the phases.
    await until(async () => (await editor.inputValue()).startsWith('on_http_request'), 'the phases');
    await page.getByRole('button', { name: 'Rate limit' }).click();
    // Playwright selects the text, then types: an example that came in between would stay beside it.
    await until(async () => (await editor.inputValue()).includes('name: per client'), 'the example in YAML');
    await editor.fill(
      'enabled: true\ninbound:\n  - actions:\n      - type: custom-response\n        config: {status_code: 418, body: teapot}\n',
    );
    // The examples are gone now, and the button below has their place.
    await page.getByRole('button', { name: 'Rate limit' }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByText('own policy').waitFor();
    await page.getByRole('link', { name: 'Policy: tour' }).click();
    await until(async () => (await editor.inputValue()).startsWith('enabled'), 'the policy');
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Save policy' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(await status(page, address)).toBe(418);

    await page.getByRole('link', { name: 'Delete: tour' }).click();
    await page.getByText(`${address}: clients get an error from now on.`).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Delete tunnel' }).click();
    await page.getByText('No tunnels yet').waitFor();
    // What was clicked left with the card.
    const focused = () => page.evaluate('document.activeElement.textContent');
    await until(async () => (await focused()) === 'Tunnels', 'the focus');
    expect(await (await call('GET', '/tunnels')).json()).toEqual([]);
    expect(troubles).toEqual([]);
  });

  it('starts a tunnel with options, shows and resets them, and says at its field what is wrong with one', async () => {
    const { page, troubles } = await openPage(browser, `${url}/#/start`);
    const own = await selfSigned('CN=localhost');
    const port = await serving(createSecureServer(own, (_request, response) => response.end('secure')));
    const saved = async () => (await (await call('GET', '/tunnels/opt.localhost')).json()) as Record<string, unknown>;
    await page.getByRole('textbox', { name: 'Domain' }).fill('opt.localhost');
    expect(await page.getByLabel('Host header').isVisible()).toBe(false);
    await page.getByText('More options').click();
    expect(await page.getByLabel('CA file').count()).toBe(0);
    await page.getByLabel('Forward to').fill(`https://localhost:${port}`);
    await page.getByLabel('CA file').fill('camera.pem');
    await page.getByLabel('Connections at a time').fill('0');
    await page.getByText('More options').click();
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    await page.getByText('Enter a whole number from 1 to 1,000.').waitFor();
    await page.getByLabel('Connections at a time').fill('2');
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    await page.getByText('must be an absolute path').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    const caFile = join(folder, 'camera.pem');
    writeFileSync(caFile, own.cert);
    await page.getByLabel('CA file').fill(caFile);
    await page.getByLabel('Redirects to').selectOption('Stay as they are');
    await page.getByLabel('Lowest version of TLS').selectOption('1.3');
    await page.getByRole('button', { name: 'Start tunnel' }).click();
    const link = page.getByRole('link', { name: /^https:\/\/opt\.localhost/ });
    expect(await status(page, (await link.getAttribute('href')) ?? '')).toBe(200);
    const options = { max_connections: 2, rewrite_redirects: false, upstream_tls_min_version: '1.3' };
    expect(await saved()).toMatchObject({ ...options, upstream_tls_ca_file: caFile });

    await page.getByRole('link', { name: 'Change: opt' }).click();
    expect(await page.getByLabel('Lowest version of TLS').inputValue()).toBe('1.3');
    await page.getByLabel('Forward to').fill(await upstream());
    await page.getByLabel('Connections at a time').fill('');
    await page.getByLabel('Time to begin a response').fill('10m');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    const after = await saved();
    expect(after).toMatchObject({ rewrite_redirects: false, response_timeout: '10m' });
    for (const option of ['max_connections', 'upstream_tls_min_version', 'upstream_tls_ca_file'])
      expect(after).not.toHaveProperty(option);
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
    // Each problem is shown once: at its field.
    const alert = page.getByRole('alert').filter({ hasText: 'The tunnel was not started' });
    await alert.waitFor();
    expect(await alert.textContent()).toBe(
      'The tunnel was not startedCorrect what is marked below.ERR_AGENT_INVALID_REQUEST',
    );
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

  it('shows the traffic of a tunnel live, with secrets masked, and replays, copies and exports it', async () => {
    let finishEvents = () => {};
    const service = await startHttpService(({ url: path, body }, res) => {
      if (path !== '/events') return void res.setHeader('content-type', 'application/json').end(body || '{"a":[1]}');
      res.setHeader('content-type', 'text/event-stream').write('data: first\n\n');
      finishEvents = () => res.end('event: tick\ndata: second\n\n');
    });
    const sockets = new WebSocketServer({ server: service.server, path: '/socket' });
    sockets.on('connection', (socket) => socket.on('message', (text) => socket.send(`${text} back`)));
    onTestFinished(() => {
      for (const socket of sockets.clients) socket.terminate();
      return service.close();
    });
    const deny = { expressions: ["req.url.path == '/denied'"], actions: [{ type: 'deny' }] };
    const created = await call('POST', '/tunnels', {
      forwards_to: new URL(service.url).port,
      domain: 'cam.localhost',
      policy: { on_http_request: [{ name: 'no entry', ...deny }] },
    });
    const address = ((await created.json()) as { url: string }).url;
    const { page, troubles } = await openPage(browser, url, { permissions: ['clipboard-read', 'clipboard-write'] });
    await page.getByRole('link', { name: 'Traffic: cam' }).click();
    await page.getByText('Nothing captured').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Start inspecting' }).click();
    await page.getByText('Waiting for requests').waitFor();
    const wide = page.viewportSize() ?? { width: 1280, height: 720 };
    await page.setViewportSize({ width: 320, height: 640 });
    const left = (selector: string) =>
      page.locator(selector).evaluate((element) => element.getBoundingClientRect().left);
    expect(await left('#traffic')).toBeGreaterThanOrEqual(await left('.inspector'));
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(320);
    await page.setViewportSize(wide);
    // What browsers send from the page itself would violate its policy; another tab may.
    const tab = await page.context().newPage();
    await tab.goto(`${address}/state?token=hunter2hunter2`);
    // Pages in the background paint once a second, and clicks wait for that.
    await page.bringToFront();
    await page.getByRole('link', { name: '/state?token=[masked]' }).click();
    await page.getByText('"a": [').waitFor();
    expect(await page.locator('body').textContent()).not.toContain('hunter2');
    await page.getByRole('button', { name: 'Reveal secrets' }).click();
    await page.getByRole('heading', { name: 'GET /state?token=hunter2hunter2' }).waitFor();
    // On a phone, the buttons are there without scrolling.
    await page.setViewportSize({ width: 320, height: 640 });
    const { y = 640, height = 0 } = (await page.getByRole('link', { name: 'Edit and replay' }).boundingBox()) ?? {};
    expect(y + height).toBeLessThan(640);
    await page.setViewportSize(wide);
    await page.getByRole('button', { name: 'Copy as curl' }).click();
    await page.getByText('Copied').waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toContain(`'${address}/state?token=hunter2hunter2'`);
    expect(await seriousProblems(page)).toEqual([]);

    await page.getByRole('link', { name: 'Edit and replay' }).click();
    await page.getByRole('textbox', { name: 'Method' }).fill('POST');
    await page.getByRole('textbox', { name: 'Body' }).fill('{"sent":"again"}');
    expect(await seriousProblems(page)).toEqual([]);
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('Replay of').waitFor();
    // Browsers ask for an icon, too.
    const sent = () => service.received.filter(({ url: path }) => path.startsWith('/state'));
    expect(sent().at(-1)).toMatchObject({
      ...{ method: 'POST', url: '/state?token=hunter2hunter2', body: '{"sent":"again"}' },
    });
    const replayed = page.url().split('/').at(-1);
    await page.getByRole('button', { name: 'Replay', exact: true }).click();
    await page.getByRole('link', { name: `request ${replayed}`, exact: true }).waitFor();
    expect(sent()).toHaveLength(3);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    // Through all dialogs, back to where the first one was opened.
    await expect.poll(() => page.evaluate('document.activeElement.textContent')).toContain('/state?token=[masked]');

    await tab.evaluate('void fetch("/events")');
    await page.getByRole('link', { name: '/events' }).click();
    await page.locator('.messages').getByText('first').waitFor();
    finishEvents();
    await page.locator('.messages').getByText('second').waitFor();
    await page.keyboard.press('Escape');

    await tab.evaluate(`new Promise((resolve) => {
      socket = new WebSocket('${address.replace('https:', 'wss:')}/socket');
      socket.onopen = resolve;
    }).then(() => socket.send('early'))`);
    await page.getByRole('link', { name: '/socket' }).click();
    await page.locator('.messages').getByText('early back').waitFor();
    await tab.evaluate("socket.send('late')");
    await page.locator('.messages').getByText('late back').waitFor();
    await page.keyboard.press('Escape');

    await tab.evaluate('void fetch("/denied?token=hunter2hunter2")');
    await page.getByRole('link', { name: '/denied?token=[masked] Gateway' }).click();
    await page.getByText('answered by the gateway: rule 1 of on_http_request, no entry: deny, 403').waitFor();
    expect(await page.getByRole('button', { name: 'Replay' }).count()).toBe(0);
    expect(await seriousProblems(page)).toEqual([]);
    await page.keyboard.press('Escape');

    await page.getByRole('searchbox', { name: 'Path contains' }).fill('state');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Export HAR' }).click(),
    ]);
    const har = JSON.parse(readFileSync(await download.path(), 'utf8')) as { log: { entries: unknown[] } };
    expect(har.log.entries).toHaveLength(3);
    // The filters stay in the address, over a look at one request and a reload.
    await page.getByRole('combobox', { name: 'Method' }).selectOption('POST');
    await page.waitForFunction("location.hash.endsWith('traffic?method=POST&path=state')");
    expect(await page.locator('.request').count()).toBe(2);
    await page.locator('.request').first().click();
    await page.getByRole('button', { name: 'Older' }).click();
    await page.getByRole('button', { name: 'Newer' }).waitFor();
    expect(await page.getByRole('button', { name: 'Older' }).count()).toBe(0);
    await page.reload();
    await page.getByRole('button', { name: 'Newer' }).click();
    await page.getByRole('button', { name: 'Older' }).waitFor();
    await page.keyboard.press('Escape');
    expect(await page.locator('.request').count()).toBe(2);
    await page.getByRole('combobox', { name: 'Method' }).selectOption('');
    await page.getByRole('searchbox', { name: 'Path contains' }).fill('größe');
    await tab.evaluate('void fetch("/gr%C3%B6%C3%9Fe?a=%2F")');
    await page.getByRole('link', { name: 'GET /größe?a=%2F' }).waitFor();
    await page.getByRole('searchbox', { name: 'Path contains' }).fill('');
    expect(JSON.stringify(har)).not.toContain('hunter2');
    await page.getByRole('button', { name: 'Clear' }).click();
    await page.getByText('Waiting for requests').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Not inspecting').waitFor();
    expect(troubles).toEqual([]);
  });

  it('works with the keyboard alone: starts a tunnel, changes its policy, deletes it, and signs out', async () => {
    const { page } = await openPage(browser, remote);
    const focused = () => page.evaluate('document.activeElement.tagName + document.activeElement.textContent');
    const focusOn = async (name: string) => {
      for (let n = 0; n < 40; n++) {
        await page.keyboard.press('Tab');
        if (String(await focused()).endsWith(name)) return;
      }
      throw new Error(`Tab does not lead to ${name}`);
    };
    // The field has the focus with the first picture of the page, which is later than that it exists.
    await page.getByLabel('API token').and(page.locator(':focus')).waitFor();
    await page.keyboard.type(readToken(folder));
    await page.keyboard.press('Enter');
    await page.getByText('No tunnels yet').waitFor();
    await focusOn('AStart tunnel');
    await page.keyboard.press('Enter');
    await page.getByLabel('Forward to').waitFor();
    const unused = await freePort();
    await page.keyboard.type(String(unused));
    await page.keyboard.press('Enter');
    await page.getByText(`nothing listens at localhost:${unused}`).waitFor();
    await focusOn('Close');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: /^Delete: / }).waitFor();

    await focusOn('APolicy');
    await page.keyboard.press('Enter');
    const editor = page.getByRole('textbox', { name: 'Traffic policy' });
    await editor.waitFor();
    while ((await focused()) !== 'TEXTAREA') await page.keyboard.press('Tab');
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.insertText('on_http_request: [{actions: [{type: deny}]}]');
    await focusOn('Save policy');
    await page.keyboard.press('Enter');
    await page.getByText('own policy').waitFor();

    await focusOn('ADelete');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    // Where it was before, a moment after the dialog has left the page.
    await expect.poll(focused).toBe('ADelete');
    await page.keyboard.press('Enter');
    await focusOn('Delete tunnel');
    await page.keyboard.press('Enter');
    await page.getByText('No tunnels yet').waitFor();

    await focusOn('Sign out');
    await page.keyboard.press('Enter');
    await focusOn('Sign out here');
    await page.keyboard.press('Enter');
    await page.getByLabel('API token').waitFor();
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
    await second.getByRole('link', { name: 'Start tunnel' }).first().click();
    await second.getByLabel('Forward to').fill('half-finished');
    await page.getByText('Sign out').first().click();
    await page.getByRole('button', { name: 'Sign out everywhere' }).click();
    await page.getByLabel('API token').waitFor();
    expect(await page.getByText('You are signed out').count()).toBe(0);
    // Says why, and keeps the form.
    await second.getByText('You are signed out: the session expired').waitFor();
    for (const width of [360, 800, 1440]) {
      await second.setViewportSize({ width, height: 900 });
      expect(await second.evaluate("document.elementFromPoint(20, 20).closest('.ended') !== null")).toBe(true);
    }
    await second.getByLabel('API token').fill(token);
    await second.getByRole('button', { name: 'Sign in' }).click();
    await second.getByText('You are signed out').waitFor({ state: 'detached' });
    expect(await second.getByLabel('Forward to').inputValue()).toBe('half-finished');
    await second.getByRole('button', { name: 'Close', exact: true }).click();
    await second.getByText('Live', { exact: true }).waitFor();
    await second.getByText('Sign out').first().click();
    await second.getByRole('button', { name: 'Sign out everywhere' }).click();
    await second.getByLabel('API token').waitFor();
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

  it('cannot be framed, and runs no script but its own', async () => {
    const framing = createServer((_, res) => {
      res.setHeader('content-type', 'text/html');
      res.end(`<iframe src="${url}/"></iframe>`);
    });
    const { page } = await openPage(browser, `http://localhost:${await serving(framing)}`);
    const [, frame] = page.frames();
    expect(await frame?.locator('main').count()).toBe(0);

    const own = await openPage(browser, url);
    await own.page.evaluate(`try { document.body.innerHTML = '<img src=x onerror="window.ran = 1">' } catch {}`);
    await own.page.evaluate(`const script = document.createElement('script'); script.append('window.ran = 1');
      document.body.append(script)`);
    expect(await own.page.evaluate('window.ran')).toBeUndefined();
    expect(own.troubles.length).toBeGreaterThan(0);
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
