import { renameSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { DatabaseUnwritable } from '../../src/gateway/store/sql/database-problems.ts';
import { launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { openDashboard } from '../support/dashboard.ts';
import { startTestGateway } from '../support/gateway.ts';
import { unless } from '../support/requirements.ts';

describe("the dashboard's overview", unless(NO_CHROMIUM), () => {
  let browser: Browser;
  beforeAll(async () => {
    browser = await launchBrowser('gateway.test');
  });
  afterAll(() => browser.close());

  it('shows what is wrong with the gateway and what to do while it is so, and then no problem again', async () => {
    const gateway = await startTestGateway({ domain: 'gateway.test' });
    onTestFinished(() => gateway.close());
    const { page } = await openDashboard(browser, gateway);
    const nothing = page.getByText('No problems found');
    await nothing.waitFor();
    const file = join(gateway.dataDir, 'gateway', 'gateway.db');
    renameSync(file, `${file}.away`);
    await expect(gateway.store.database.write(() => {})).rejects.toThrow(DatabaseUnwritable);
    const problem = page.getByRole('listitem').filter({ hasText: 'All changes are rejected: database was deleted' });
    await problem.getByText('Stop the gateway, rename').waitFor();
    expect(await nothing.count()).toBe(0);
    expect(await seriousProblems(page)).toEqual([]);
    renameSync(`${file}.away`, file);
    await nothing.waitFor();
    expect(await problem.count()).toBe(0);
  });
});
