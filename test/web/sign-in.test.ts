import { createServer } from 'node:http';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { WebSocketServer } from 'ws';
import { launchBrowser, NO_CHROMIUM, openPage } from '../support/browser.ts';
import { agentSession, managementClientOf, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { CLIENT, TestIdentityProvider } from '../support/identity-provider.ts';
import { listening } from '../support/loopback.ts';
import { unless } from '../support/requirements.ts';

const HOSTS = ['cam.localhost', 'door.localhost'];

describe('sign-in at an identity provider', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  let idp: TestIdentityProvider;
  let origins: string[];
  const upstream = createServer((req, res) => {
    if (req.url === '/events') {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: first\n\n');
      return;
    }
    const { 'x-user': user, cookie = 'no cookies' } = req.headers;
    res.setHeader('content-type', 'text/html');
    res.end(`<p>${user} sees ${req.headers.host?.split('.')[0]}${req.url} with ${cookie}</p>`);
  });

  beforeAll(async () => {
    const webSockets = new WebSocketServer({ server: upstream });
    webSockets.on('connection', (socket) => socket.send('opened'));
    [browser, gateway] = await Promise.all([
      launchBrowser(),
      startTestGateway({ requestForSignIn: (...request) => idp.send(...request) }),
    ]);
    origins = HOSTS.map((host) => `https://${host}:${gateway.httpsPort}`);
    idp = await TestIdentityProvider.start(origins.map((origin) => `${origin}/ngrok/oidc/callback`));
    const session = await agentSession(gateway).connect();
    const port = await listening(upstream);
    const policy = {
      on_http_request: [
        { actions: [{ type: 'openid-connect', config: { issuer_url: idp.issuer, ...CLIENT } }] },
        {
          actions: [
            { type: 'remove-headers', config: { headers: ['x-user'] } },
            { type: 'add-headers', config: { headers: { 'x-user': `\${actions.ngrok.oidc.identity.email}` } } },
          ],
        },
      ],
    };
    for (const host of HOSTS) {
      const listener = await session.httpEndpoint().domain(host).trafficPolicy(JSON.stringify(policy)).listen(false);
      void listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    }
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
    await idp.close();
    upstream.closeAllConnections();
    upstream.close();
  });

  async function signIn(page: Page, name = 'jo'): Promise<void> {
    await page.getByLabel('Name').fill(name);
    await page.getByRole('button').click();
  }

  /** The status of a request of the page's own script, which is not led to the provider. */
  const statusOf = (page: Page) => page.evaluate("fetch('/').then(({ status }) => status)");

  const textOf = (page: Page) => page.locator('body').innerText();

  it('leads to the provider and back, without JavaScript, and ends with /ngrok/logout', async () => {
    const { page } = await openPage(browser, `${origins[0]}/live?q=1`, { javaScriptEnabled: false });
    await signIn(page);
    await page.waitForURL(`${origins[0]}/live?q=1`);
    expect(await textOf(page)).toBe('jo@example.com sees cam/live?q=1 with no cookies');
    await page.goto(`${origins[0]}/ngrok/logout`);
    expect(await textOf(page)).toContain('Signed out');
    await page.getByRole('link', { name: 'Sign in' }).click();
    await signIn(page);
    await page.waitForURL(`${origins[0]}/`);
  });

  it('is of one endpoint, and of all tabs', async () => {
    const { page } = await openPage(browser, `${origins[0]}/a`);
    const tab = await page.context().newPage();
    await tab.goto(`${origins[0]}/b`);
    await signIn(tab);
    await tab.waitForURL(`${origins[0]}/b`);
    await page.goto(`${origins[0]}/a`);
    expect(await textOf(page)).toContain('jo@example.com sees cam/a');
    await tab.goto(`${origins[1]}/c`);
    // The provider knows who it is, and does not ask again.
    await tab.waitForURL(`${origins[1]}/c`);
    const cookies = await page.context().cookies(origins);
    const kinds = cookies.map(
      ({ domain, httpOnly, secure, sameSite }) => `${domain} ${httpOnly} ${secure} ${sameSite}`,
    );
    expect([...new Set(kinds)].sort()).toEqual(HOSTS.map((host) => `${host} true true Lax`));
  });

  it('holds for WebSocket and server-sent events', async () => {
    const { page } = await openPage(browser, `${origins[0]}/`);
    const opened = `new Promise((resolve) => {
      const socket = new WebSocket('wss://${HOSTS[0]}:${gateway.httpsPort}/socket');
      socket.onmessage = ({ data }) => resolve(data);
      socket.onerror = () => resolve('failed');
    })`;
    const first = `new Promise((resolve) => {
      const events = new EventSource('/events');
      events.onmessage = ({ data }) => resolve(data);
      events.onerror = () => resolve('failed');
    })`;
    await signIn(page);
    await page.waitForURL(`${origins[0]}/`);
    expect([await page.evaluate(opened), await page.evaluate(first)]).toEqual(['opened', 'first']);
    const copies = await page.context().cookies(origins[0]);
    await page.evaluate("fetch('/ngrok/logout')");
    expect([await page.evaluate(opened), await page.evaluate(first)]).toEqual(['failed', 'failed']);
    await page.context().addCookies(copies);
    await expect.poll(() => statusOf(page)).toBe(401);
  });

  it('is listed by the management API, which ends it', async () => {
    const { page } = await openPage(browser, `${origins[0]}/`);
    await signIn(page, 'ann');
    await page.waitForURL(`${origins[0]}/`);
    const client = await managementClientOf(gateway);
    const { items } = await client.applicationSessions.list();
    const ann = (await client.applicationUsers.list()).items.find(({ name }) => name === 'ANN');
    const session = items.find(({ application_user }) => application_user.id === ann?.id);
    expect(session).toMatchObject({ public_url: origins[0], browser_session: { ip_address: '127.0.0.1' } });
    await client.applicationSessions.delete(session?.id ?? '');
    await expect.poll(() => statusOf(page)).toBe(401);
  });

  it.each([-2, 2])('begins at a provider whose clock is %i minutes off', async (minutes) => {
    idp.onSend = () => void vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + minutes * 60_000 });
    idp.onAnswer = () => void vi.useRealTimers();
    onTestFinished(() => {
      idp.onSend = idp.onAnswer = () => {};
    });
    const { page } = await openPage(browser, `${origins[0]}/`);
    await signIn(page);
    await page.waitForURL(`${origins[0]}/`);
    await page.reload();
    expect(await textOf(page)).toContain('jo@example.com sees cam/');
  });

  it('shows a page that leads on when it fails', async () => {
    const { page } = await openPage(browser, `${origins[0]}/`);
    await signIn(page, '');
    await page.getByText('Signing in was declined.').waitFor();
    expect(await textOf(page)).toContain('ERR_NGROK_3114');
    await page.getByRole('link', { name: 'Sign in' }).click();
    await signIn(page);
    await page.waitForURL(`${origins[0]}/`);
  });
});
