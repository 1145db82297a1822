import { expect, it, onTestFinished } from 'vitest';
import { launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { startClusterNode } from '../support/cluster-node.ts';
import { openDashboard } from '../support/dashboard.ts';
import { NO_POSTGRES, PostgresServer } from '../support/postgres-server.ts';
import { unless } from '../support/requirements.ts';

it(
  'the dashboard lists the gateways of a cluster, and says that it is old while their database is away',
  unless(NO_CHROMIUM ?? NO_POSTGRES),
  async () => {
    const server = await PostgresServer.start();
    onTestFinished(() => server.end());
    const one = await startClusterNode(server.url());
    const two = await startClusterNode(server.url());
    const browser = await launchBrowser();
    onTestFinished(() => browser.close());
    const { page } = await openDashboard(browser, one, '', { viewport: { width: 360, height: 740 } });
    const listed = page.getByRole('region', { name: 'Gateways' }).getByRole('listitem');
    for (const { httpsPort } of [one, two]) await listed.filter({ hasText: `127.0.0.1:${httpsPort}` }).waitFor();
    expect(await listed.first().innerText()).toContain('0 sessions, 0 endpoints');
    expect(await seriousProblems(page)).toEqual([]);

    await two.close();
    await listed.filter({ hasText: `127.0.0.1:${two.httpsPort}` }).waitFor({ state: 'detached' });

    const old = page.getByRole('alert').filter({ hasText: 'The shared database does not answer' });
    await server.kill();
    await old.waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await server.restart();
    await old.waitFor({ state: 'detached' });
  },
);
