import { renameSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { beginCaChange, nextCa } from '../../src/gateway/certificates/local-ca/ca-rotation.ts';
import { makeCa } from '../../src/gateway/certificates/local-ca/local-ca.ts';
import { DatabaseUnwritable } from '../../src/gateway/store/sql/database-problems.ts';
import { launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { openDashboard } from '../support/dashboard.ts';
import { startTestGateway } from '../support/gateway.ts';
import { joinedDevice } from '../support/joined-devices.ts';
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

  it('names the devices that do not trust the next CA from the start of its change, which is no problem yet', async () => {
    const gateway = await startTestGateway({ domain: 'gateway.test' });
    onTestFinished(() => gateway.close());
    const { store } = gateway;
    const join = (name: string) => joinedDevice(store, { site: 'site.example.com', name, last_seen_at: null });
    const old = await join('cam-1');
    await join('cam-2');
    const { page } = await openDashboard(browser, gateway);
    const change = page.getByRole('region', { name: "Change of the gateway's CA" });
    await page.getByText('Never online').first().waitFor();
    expect(await change.count()).toBe(0);
    await beginCaChange(store, await makeCa(), null);
    await change.getByText('0 of 2 devices trust the next CA').waitFor();
    await change.getByText('Not yet: cam-1.site.example.com, cam-2.site.example.com.').waitFor();
    await store.database.write(() =>
      store.devices.update({ ...old, trusted_cas: [String(nextCa(store.database)?.id)] }),
    );
    await change.getByText('Not yet: cam-2.site.example.com.').waitFor();
    expect(await page.getByText('do not trust the next one').count()).toBe(0);
    expect(await seriousProblems(page)).toEqual([]);
  });
});
