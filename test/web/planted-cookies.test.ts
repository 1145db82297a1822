import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { SIGN_IN_PURPOSE } from '../../src/gateway/store/command-key.ts';
import { issueCode } from '../../src/lib/http/one-time-code.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage } from '../support/browser.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const DOMAIN = 'gateway.test';
/** Browsers refuse a Domain for cookies with the prefix, but for none of these names. */
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
    const service = await startHttpService((_, res) => {
      res.setHeader(
        'set-cookie',
        PLANTED.map((name) => `${name}=${'A'.repeat(43)}; Domain=${DOMAIN}; Path=/; Secure`),
      );
      // Node writes a text and the headers before it in one encoding.
      res.end(Buffer.from('planted'));
    });
    onTestFinished(() => service.close());
    const neighbour = await agentSession(gateway).connect();
    onTestFinished(() => neighbour.close());
    const listener = await neighbour.httpEndpoint().domain(`evil.${DOMAIN}`).listen();
    void listener.forward(service.url).catch(() => {});
    const agent = AgentProcess.start(folder, {
      NGROK_SERVER_ADDR: gateway.sessionAddress,
      NGROK_AUTHTOKEN: gateway.authtoken,
      NGROK_CA_CERT: gateway.caFile,
      AGENT_DOMAIN: `me.${DOMAIN}`,
    });
    onTestFinished(async () => void (await agent.end()));
    const api = await agent.ready();
    await agent.logged('remote API online');

    const { page } = await openPage(browser, `https://evil.${DOMAIN}:${gateway.httpsPort}/`);
    await page.getByText('planted').waitFor();
    const cookies = await page.context().cookies(`https://me.${DOMAIN}/`);
    expect(cookies.length).toBeGreaterThan(0);

    const command = await deviceAgent(['page', '--json'], folder, { AGENT_PORT: new URL(api).port });
    await page.goto((JSON.parse(command.stdout) as { link: string }).link);
    await page.getByRole('heading', { name: /^Online/ }).waitFor();
    await signOutAndWaitFor(page, 'API token');

    await page.goto(`${gateway.apiUrl}/#code=${issueCode(gateway.store.box.keyFor(SIGN_IN_PURPOSE), Date.now())}`);
    await page.getByText('Live', { exact: true }).waitFor();
    await signOutAndWaitFor(page, 'API key');
  }, 120_000);
});

async function signOutAndWaitFor(page: Page, label: string): Promise<void> {
  await page.getByText('Sign out').first().click();
  await page.getByRole('button', { name: 'Sign out here' }).click();
  await page.getByLabel(label, { exact: true }).waitFor();
}
