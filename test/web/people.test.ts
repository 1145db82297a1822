import { createServer } from 'node:http';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addPerson, issuePersonLink } from '../../src/gateway/sign-in/manage-sign-ins.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { openDashboard } from '../support/dashboard.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { listening } from '../support/loopback.ts';
import { unless } from '../support/requirements.ts';

const PASSWORD = 'correct horse battery';

describe('people of the gateway', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  let page: (name: string, path?: string) => string;
  const upstream = createServer((req, res) => {
    res.setHeader('content-type', 'text/html');
    res.end(`<p>${req.headers['x-user']} sees ${req.headers.host?.split('.')[0]}${req.url}</p>`);
  });

  beforeAll(async () => {
    [browser, gateway] = await Promise.all([launchBrowser(), startTestGateway({ listApplications: true })]);
    page = (name, path = '/') => `https://${name}.localhost:${gateway.httpsPort}${path}`;
    const session = await agentSession(gateway).connect();
    const port = await listening(upstream);
    const user = `\${actions.ngrok.gateway_sign_in.identity.email}`;
    const policy = JSON.stringify({
      on_http_request: [
        { actions: [{ type: 'gateway-sign-in', config: { groups: ['family'] } }] },
        {
          actions: [
            { type: 'remove-headers', config: { headers: ['x-user'] } },
            { type: 'add-headers', config: { headers: { 'x-user': user } } },
          ],
        },
      ],
    });
    for (const name of ['cam', 'door']) {
      const listener = await session.httpEndpoint().domain(`${name}.localhost`).trafficPolicy(policy).listen(false);
      void listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
    }
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
    upstream.closeAllConnections();
    upstream.close();
  });

  /** A person who has not chosen yet, and the link by which they do. */
  async function invited(email: string, groups = ['family']): Promise<string> {
    const { store } = gateway;
    const { path } = await store.database.write(() => issuePersonLink(store, addPerson(store, { email, groups }).id));
    return page('sign-in', path);
  }

  async function choosePassword(tab: Page): Promise<void> {
    await tab.getByLabel('Password').fill(PASSWORD);
    await tab.getByRole('button', { name: 'Save the password' }).click();
    await tab.getByText('You are signed in').waitFor();
  }

  async function signIn(tab: Page, email: string): Promise<void> {
    await tab.getByLabel('Email').fill(email);
    await tab.getByLabel('Password').fill(PASSWORD);
    await tab.getByRole('button', { name: 'Sign in', exact: true }).click();
  }

  const textOf = (tab: Page) => tab.locator('body').innerText();

  it('choose a password, sign in and out without JavaScript, on a phone', async () => {
    const phone = { javaScriptEnabled: false, viewport: { width: 320, height: 600 } };
    const { page: tab } = await openPage(browser, await invited('jo@example.com'), phone);
    const { height = 0 } = (await tab.getByRole('main').getByRole('button').first().boundingBox()) ?? {};
    expect(height, 'for a finger').toBeGreaterThanOrEqual(44);
    await choosePassword(tab);
    await tab.goto(page('cam', '/live?q=1'));
    await tab.getByRole('button', { name: 'Continue as jo@example.com' }).click();
    await tab.waitForURL(page('cam', '/live?q=1'));
    expect(await textOf(tab)).toBe('jo@example.com sees cam/live?q=1');
    await tab.goto(page('cam', '/ngrok/logout'));
    await tab.getByRole('link', { name: 'Sign out of this gateway' }).click();
    await tab.getByRole('button', { name: 'Sign out everywhere' }).click();
    expect(await textOf(tab)).toContain('Signed out');
    await tab.goto(page('cam', '/again'));
    expect(await tab.getByRole('button', { name: 'passkey' }).count()).toBe(0);
    await tab.getByLabel('Password').fill('a wrong password');
    await tab.getByLabel('Email').fill('jo@example.com');
    await tab.getByRole('button', { name: 'Sign in', exact: true }).click();
    await tab.getByText('is wrong').waitFor();
    await signIn(tab, 'jo@example.com');
    await tab.waitForURL(page('cam', '/again'));
  });

  it('make a passkey, and sign in with it at a second tunnel', async () => {
    const { page: tab, troubles } = await openPage(browser, await invited('ann@example.com'));
    const cdp = await tab.context().newCDPSession(tab);
    await cdp.send('WebAuthn.enable');
    const { authenticatorId } = await cdp.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        ...({ protocol: 'ctap2', transport: 'internal', hasResidentKey: true } as const),
        ...{ hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true },
      },
    });
    await tab.getByRole('button', { name: 'Use a passkey' }).click();
    await tab.getByText('You are signed in as ann@example.com').waitFor();
    await tab.getByRole('button', { name: 'Sign out everywhere' }).click();
    await tab.goto(page('door', '/b'));
    const withPasskey = tab.getByRole('button', { name: 'Sign in with a passkey' });
    await withPasskey.click();
    await tab.waitForURL(page('door', '/b'));
    expect(await textOf(tab)).toBe('ann@example.com sees door/b');
    expect(troubles.filter((trouble) => !trouble.startsWith('request to'))).toEqual([]);

    await tab.goto(page('door', '/ngrok/login'));
    await cdp.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: false });
    await withPasskey.click();
    await tab.getByText('No passkey was used').waitFor();
    await cdp.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: true });
    await gateway.store.database.write(() => {
      for (const { id } of gateway.store.passkeys.page(null, 10)) gateway.store.passkeys.delete(id);
    });
    await withPasskey.click();
    await tab.getByText('The passkey is unknown here').waitFor();
  });

  it('sign in as somebody else where they are not admitted, in two tabs', async () => {
    const { page: tab } = await openPage(browser, await invited('guest@example.com', []));
    await choosePassword(tab);
    const { page: other } = await openPage(browser, await invited('kim@example.com'));
    await choosePassword(other);
    await tab.goto(page('cam'));
    const second = await tab.context().newPage();
    await second.goto(page('door'));
    for (const each of [tab, second]) {
      await each.getByRole('button', { name: 'Continue as guest@example.com' }).click();
      await each.getByText('guest@example.com may not open this page').waitFor();
    }
    await tab.getByRole('link', { name: 'Sign in as somebody else' }).click();
    await signIn(tab, 'kim@example.com');
    await tab.waitForURL(page('cam'));
    await second.goto(page('door'));
    expect(await textOf(second)).toContain('guest@example.com may not open this page');
  });

  it('are managed in the dashboard, which shows a new link once', async () => {
    const { page: tab } = await openDashboard(browser, gateway, 'people/new');
    await tab.getByLabel('Email').fill('Max@Example.com');
    await tab.getByLabel('Groups').fill('family\nstaff');
    await tab.getByRole('dialog').getByRole('button', { name: 'Add person' }).click();
    await tab.getByRole('heading', { name: 'max@example.com' }).waitFor();
    await tab.getByText('Has not chosen yet').last().waitFor();
    await tab.getByRole('region', { name: 'May sign in at' }).getByRole('link', { name: 'cam.localhost' }).click();
    await tab.getByText('Group family').waitFor();
    await tab.getByRole('link', { name: 'family' }).click();
    await tab.getByRole('link', { name: 'max@example.com' }).click();
    await tab.getByRole('link', { name: 'New link' }).click();
    await tab.getByRole('button', { name: 'Create link' }).click();
    await tab.getByText('It works once, until').waitFor();
    const { page: person } = await openPage(browser, await tab.locator('.with-copy pre').innerText());
    await choosePassword(person);
    await tab.getByRole('button', { name: 'Done' }).click();
    await tab.getByText('Password', { exact: true }).last().waitFor();
    await tab.getByRole('link', { name: 'Sign out', exact: true }).click();
    await tab.getByRole('button', { name: 'Sign out everywhere' }).click();
    await tab.getByRole('dialog').waitFor({ state: 'detached' });
    const askedAgain = async () => {
      await person.goto(page('sign-in'));
      return person.getByLabel('Password').count();
    };
    await expect.poll(askedAgain).toBe(1);
    await tab.getByRole('link', { name: 'Remove', exact: true }).click();
    await tab.getByRole('button', { name: 'Remove person' }).click();
    await tab.getByRole('dialog').waitFor({ state: 'detached' });
    expect(gateway.store.people.byEmail('max@example.com')).toBeNull();
  });

  it('sign in to the dashboard, where their changes have their names, and lose it with the right', async () => {
    const { page: tab } = await openPage(browser, await invited('op@example.com', []), {
      viewport: { width: 360, height: 640 },
    });
    await choosePassword(tab);
    await tab.goto(`${gateway.apiUrl}/#/bot-users`);
    await tab.getByLabel('API key').waitFor();
    expect(await tab.getByRole('button', { name: 'Sign in with your account' }).count()).toBe(0);
    const { store } = gateway;
    const op = store.people.byEmail('op@example.com');
    if (!op) throw new Error('there is no such person');
    const allow = (dashboard: boolean) => store.database.write(() => store.people.update({ ...op, dashboard }));
    await allow(true);
    await tab.reload();
    const look = async () => {
      expect(await tab.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
      expect(await seriousProblems(tab)).toEqual([]);
    };
    const withAccount = tab.getByRole('button', { name: 'Sign in with your account' });
    await withAccount.waitFor();
    await look();
    await withAccount.click();
    await tab.getByText('to use the dashboard of this gateway').waitFor();
    await look();
    await signIn(tab, 'op@example.com');
    await tab.waitForURL(`${gateway.apiUrl}/#/bot-users`);
    await tab.getByText('Live', { exact: true }).waitFor();
    await tab.goto(`${gateway.apiUrl}/#/bot-users/new`);
    await tab.getByRole('dialog').getByLabel('Name').fill('cameras');
    await tab.getByRole('dialog').getByRole('button', { name: 'Create bot user' }).click();
    await tab.getByRole('dialog').waitFor({ state: 'detached' });
    const [{ type, by } = {}] = store.auditLog.find({ by: op.id }, { before: null }, 1);
    expect([type, by]).toEqual(['bot_user_created.v0', op.id]);
    await tab.goto(`${gateway.apiUrl}/#/audit-log`);
    await tab.getByText('op@example.com', { exact: true }).first().waitFor();
    await allow(false);
    await tab.getByText('You are signed out').waitFor();
    await tab.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
  });

  it('see pages that fit a narrow phone, and that all can use', async () => {
    const { page: tab } = await openPage(browser, await invited('lee@example.com'), {
      viewport: { width: 320, height: 600 },
    });
    const look = async () => {
      expect(await tab.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(320);
      expect(await seriousProblems(tab)).toEqual([]);
    };
    await look();
    await choosePassword(tab);
    await look();
    await tab.getByRole('link', { name: 'cam.localhost' }).click();
    await look();
    await tab.getByRole('link', { name: 'somebody else' }).click();
    await look();
  });
});
