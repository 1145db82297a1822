import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { issueDashboardCode } from '../../src/gateway/store/command-access.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const DOMAIN = 'gateway.test';
/** Browsers refuse a Domain for cookies with the prefix, but for none of these names. */
const SITE = `site.${DOMAIN}`;
const PLANTED = ['\u00a0__Host-device-agent', '__Host-device-agent\u00a0', 'a\u00a0'];

describe('cookies that a tunnel plants for its neighbours below the same domain', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  const folder = sharedFolder();

  beforeAll(async () => {
    [browser, gateway] = await Promise.all([launchBrowser(DOMAIN), startTestGateway({ domain: DOMAIN })]);
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
  });

  it("neither sign a browser in nor keep it out, at the device's page and at the dashboard", async () => {
    const service = await startHttpService((req, res) => {
      const plantedIn = (domain: string) =>
        PLANTED.map((name) => `${name}=${'A'.repeat(43)}; Domain=${domain}; Path=/; Secure`);
      // The gateway lets no response set any for its own domain.
      res.setHeader('set-cookie', [...plantedIn(SITE), ...plantedIn(DOMAIN)]);
      res.setHeader('content-type', 'text/html; charset=utf-8');
      const script = plantedIn(DOMAIN).map((cookie) => `document.cookie = ${JSON.stringify(cookie)};`);
      // Node writes a text and the headers before it in one encoding.
      res.end(Buffer.from(`<p>planted</p><script>${req.url === '/' ? '' : script.join('')}</script>`));
    });
    onTestFinished(() => service.close());
    await online(`evil.${SITE}`, service.url);
    const agent = AgentProcess.start(folder, {
      NGROK_SERVER_ADDR: gateway.sessionAddress,
      NGROK_AUTHTOKEN: gateway.authtoken,
      NGROK_CA_CERT: gateway.caFile,
      AGENT_DOMAIN: `me.${SITE}`,
    });
    onTestFinished(async () => void (await agent.end()));
    const api = await agent.ready();
    await agent.logged('remote API online');

    const { page } = await openPage(browser, `https://evil.${SITE}:${gateway.httpsPort}/`);
    const planted = async (host: string) => (await page.context().cookies(`https://${host}/`)).length;
    await page.getByText('planted').waitFor();
    expect([await planted(`me.${SITE}`), await planted(`api.${DOMAIN}`)]).toEqual([expect.any(Number), 0]);
    await page.goto(`https://evil.${SITE}:${gateway.httpsPort}/script`);
    await page.getByText('planted').waitFor();
    expect(await planted(`me.${SITE}`)).toBeGreaterThan(await planted(`api.${DOMAIN}`));
    expect(await planted(`api.${DOMAIN}`)).toBeGreaterThan(0);

    const command = await deviceAgent(['page', '--json'], folder, { AGENT_PORT: new URL(api).port });
    await page.goto((JSON.parse(command.stdout) as { link: string }).link);
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    await signOutAndWaitFor(page, 'API token');

    await page.goto(`${gateway.apiUrl}/#code=${issueDashboardCode(gateway.store.box, Date.now())}`);
    await page.getByText('Live', { exact: true }).waitFor();
    await signOutAndWaitFor(page, 'API key');
  }, 120_000);

  it.each([20, 170])(
    "too many of them, here %i, close neither the gateway's pages nor, once deleted by a button, other tunnels",
    async (count) => {
      const bomb = await startHttpService((_, res) => {
        res.setHeader('content-type', 'text/html');
        const script = `for (let at = 0; at < ${count}; at++) document.cookie = 'b' + at + '=' + 'x'.repeat(4000) + '; Domain=${DOMAIN}; Path=/; Secure'`;
        res.end(`<p>bomb</p><script>${script}</script>`);
      });
      const cam = await startHttpService((_, res) => void res.end('the camera'));
      onTestFinished(async () => void (await Promise.all([bomb.close(), cam.close()])));
      await online(`bomb${count}.${DOMAIN}`, bomb.url);
      await online(`cam${count}.${DOMAIN}`, cam.url);
      const { page } = await openPage(browser, `https://bomb${count}.${DOMAIN}:${gateway.httpsPort}/`);
      await page.getByText('bomb').waitFor();
      expect((await page.context().cookies()).length).toBe(count);

      await page.goto(`${gateway.apiUrl}/`);
      await page.getByLabel('API key', { exact: true }).waitFor();
      await page.goto(`https://sign-in.${DOMAIN}:${gateway.httpsPort}/`);
      await page.getByLabel('Email').waitFor();

      await page.goto(`https://cam${count}.${DOMAIN}:${gateway.httpsPort}/live`);
      await page.getByText('KB of cookies').waitFor();
      expect(await seriousProblems(page)).toEqual([]);
      await page.getByRole('button', { name: 'Delete cookies' }).click();
      await page.getByRole('heading', { name: 'Cookies deleted' }).waitFor();
      expect(await page.context().cookies()).toEqual([]);
      await page.getByRole('link', { name: 'Continue' }).click();
      await page.getByText('the camera').waitFor();
    },
    120_000,
  );

  async function online(host: string, url: string): Promise<void> {
    const neighbour = await agentSession(gateway).connect();
    onTestFinished(() => neighbour.close());
    const listener = await neighbour.httpEndpoint().domain(host).listen();
    void listener.forward(url).catch(() => {});
  }
});

async function signOutAndWaitFor(page: Page, label: string): Promise<void> {
  await page.getByText('Sign out').first().click();
  await page.getByRole('button', { name: 'Sign out here' }).click();
  await page.getByLabel(label, { exact: true }).waitFor();
}
