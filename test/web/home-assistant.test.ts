import { createServer, request } from 'node:http';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { ingress } from '../../packaging/home-assistant/device-agent/run.js';
import { AgentProcess } from '../support/agent-process.ts';
import { launchBrowser, NO_CHROMIUM, openPage } from '../support/browser.ts';
import { startHttpService } from '../support/http-service.ts';
import { serving } from '../support/loopback.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const PATH = '/api/hassio_ingress/abc123';

describe('the app in Home Assistant', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let agent: AgentProcess;
  let agentPort: number;

  beforeAll(async () => {
    [browser, agent] = [await launchBrowser(), AgentProcess.start(sharedFolder())];
    agentPort = Number(new URL(await agent.ready()).port);
  });
  afterAll(async () => {
    await browser.close();
    await agent.end();
  });

  /** Home Assistant: a page with the app in a frame, and the app's page below a path; it says who asked, as the real one does. */
  async function homeAssistant(): Promise<string> {
    const port = await serving(ingress({ agentPort, client: '127.0.0.1' }));
    const server = createServer((req, res) => {
      if (!req.url?.startsWith(PATH)) {
        res.setHeader('Content-Type', 'text/html');
        res.end(`<iframe title=Tunnels src="${PATH}/" width=900 height=700></iframe>`);
        return;
      }
      const forwarded = {
        'x-forwarded-host': req.headers.host,
        'x-forwarded-for': '192.168.1.7',
        'x-ingress-path': PATH,
      };
      const passed = request({
        port,
        method: req.method,
        path: req.url.slice(PATH.length),
        headers: { ...req.headers, ...forwarded },
      });
      passed.on('response', (answer) => answer.pipe(res.writeHead(answer.statusCode ?? 0, answer.headers)));
      // The browser has left.
      passed.on('error', () => res.destroy());
      res.on('close', () => passed.destroy());
      req.pipe(passed);
    });
    return `http://127.0.0.1:${await serving(server)}`;
  }

  it('shows the device’s page in a frame below a path, which starts a tunnel and shows its traffic', async () => {
    const service = await startHttpService((_, res) => void res.end('hello'));
    onTestFinished(() => service.close());
    const { page, troubles } = await openPage(browser, await homeAssistant());
    const app = page.frameLocator('iframe');
    await app.getByRole('heading', { name: 'Online' }).waitFor();
    await app.getByRole('link', { name: 'Start tunnel' }).click();
    await app.getByRole('textbox', { name: 'Forward to' }).fill(new URL(service.url).port);
    await app.getByRole('textbox', { name: 'Domain' }).fill('home.localhost');
    await app.getByRole('button', { name: 'Start tunnel' }).click();
    await app.getByRole('link', { name: /^https:\/\/home\.localhost/ }).waitFor();
    await app.getByRole('link', { name: 'Traffic: home' }).click();
    await app.getByText('Not inspecting').waitFor();
    expect(troubles).toEqual([]);
  });

  it('only shows it to Home Assistant’s own page and address', async () => {
    const base = await homeAssistant();
    const statusFor = async (headers: Record<string, string>) =>
      (await fetch(`${base}${PATH}/tunnels`, { headers })).status;
    expect(await statusFor({})).toBe(200);
    expect(await statusFor({ origin: new URL(base).origin })).toBe(200);
    expect(await statusFor({ origin: 'https://evil.example.com' })).toBe(403);
    expect(await statusFor({ origin: 'null' })).toBe(403);
    expect(await statusFor({ 'sec-fetch-site': 'cross-site' })).toBe(403);
    const port = await serving(ingress({ agentPort, client: '172.30.32.2' }));
    expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(403);
  });
});
