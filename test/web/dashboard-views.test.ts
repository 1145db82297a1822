import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { addPerson } from '../../src/gateway/sign-in/manage-sign-ins.ts';
import { addressColumns } from '../../src/gateway/store/cloud-endpoints.ts';
import { issueDashboardCode } from '../../src/gateway/store/command-access.ts';
import type { DeviceRow } from '../../src/gateway/store/devices.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import type { TlsEdgeRow } from '../../src/gateway/store/tls-edges.ts';
import { issueApiKey, issueCredential } from '../../src/gateway/store/tokens.ts';
import { brokenWords, launchBrowser, NO_CHROMIUM, seriousProblems } from '../support/browser.ts';
import { type Filled, fillStore, openDashboard } from '../support/dashboard.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { unless } from '../support/requirements.ts';
import { until } from '../support/until.ts';

/** What devices, and others with access, could plant in any text. None of it may run. */
const HOSTILE = `<script>alert(1)</script><img src=x onerror=alert(1)>"><svg onload=alert(1)>javascript:alert(1)//'{{alert(1)}}`;
/** A name that nothing else has. */
const FRESH = 'fresh';

/** Writes another item of each resource, as commands and other people do while one looks at its list. */
const ADD: { [View in keyof Filled]: (store: Store, filled: Filled) => void } = {
  devices: ({ devices, ids }, { devices: id }) => {
    const another = { name: FRESH, status: 'pending' as const, credential_id: null, install_hash: randomBytes(32) };
    devices.insert({ ...existing(devices, id), id: ids.next('dev'), ...another });
  },
  'bulk-actions': ({ bulkActions, ids }, { 'bulk-actions': id }) =>
    bulkActions.insert({ ...existing(bulkActions, id), id: ids.next('blk'), by: FRESH }),
  invites: ({ enrolmentKeys, ids }, { invites: id }) =>
    enrolmentKeys.insert({ ...existing(enrolmentKeys, id), id: ids.next('ek'), site: `${FRESH}.example.com` }),
  domains: ({ reservedDomains, ids }, { domains: id }) =>
    reservedDomains.insert({ ...existing(reservedDomains, id), id: ids.next('rd'), domain: `${FRESH}.example.com` }),
  certificates: ({ tlsCertificates, ids }, { certificates: id }) => {
    const row = existing(tlsCertificates, id);
    const facts = { ...row.facts, subject_common_name: FRESH };
    tlsCertificates.insertWithKey({ ...row, id: ids.next('cert'), facts }, '');
  },
  edges: ({ tlsEdges, ids }, { edges: id }) =>
    tlsEdges.insert({ ...existing(tlsEdges, id), id: ids.next('edgtls'), hostports: null, description: FRESH }),
  'tunnel-groups': ({ tunnelGroupBackends: groups, ids }, { 'tunnel-groups': id }) =>
    groups.insert({ ...existing(groups, id), id: ids.next('bkdtg'), description: FRESH }),
  responses: ({ httpResponseBackends: responses, ids }, { responses: id }) =>
    responses.insert({ ...existing(responses, id), id: ids.next('bkdhr'), description: FRESH }),
  'ip-policies': ({ ipPolicies, ids }, { 'ip-policies': id }) =>
    ipPolicies.insert({ ...existing(ipPolicies, id), id: ids.next('ipp'), description: FRESH }),
  'ip-restrictions': ({ ipRestrictions, ids }, { 'ip-restrictions': id }) =>
    ipRestrictions.insert({ ...existing(ipRestrictions, id), id: ids.next('ipx'), type: 'agent', description: FRESH }),
  'tcp-addresses': ({ reservedAddrs, ids }, { 'tcp-addresses': id }) =>
    reservedAddrs.insert({ ...existing(reservedAddrs, id), id: ids.next('ra'), port: 20_002, description: FRESH }),
  vaults: ({ vaults, ids }, { vaults: id }) =>
    vaults.insert({ ...existing(vaults, id), id: ids.next('vault'), name: FRESH }),
  endpoints: ({ cloudEndpoints, ids }, { endpoints: id }) => {
    const address = addressColumns({ protocol: 'https', internal: true, host: `${FRESH}.internal`, port: 443 });
    cloudEndpoints.insert({ ...existing(cloudEndpoints, id), ...address, id: ids.next('ep') });
  },
  'audit-log': ({ auditLog, ids }, { 'audit-log': id }) =>
    auditLog.insert({ ...existing(auditLog, id), id: ids.next('evt'), after: { name: FRESH } }),
  authorities: ({ certificateAuthorities: authorities, ids }, { authorities: id }) => {
    const row = existing(authorities, id);
    authorities.insert({ ...row, id: ids.next('ca'), facts: { ...row.facts, subject_common_name: FRESH } });
  },
  people: (store) => void addPerson(store, { email: `${FRESH}@example.com` }),
  'sign-ins': ({ applicationUsers: users, ids }, { 'sign-ins': id }) =>
    users.insert({ ...existing(users, id), id: ids.next('au'), subject: FRESH, email: `${FRESH}@example.com` }),
  'bot-users': ({ botUsers, ids }, { 'bot-users': id }) =>
    botUsers.insert({ ...existing(botUsers, id), id: ids.next('bot'), name: FRESH }),
  authtokens: (store) => void issueCredential(store, { description: FRESH, acl: [] }),
  'api-keys': (store) => void issueApiKey(store, { description: FRESH }),
  'share-links': ({ shareLinks, ids }, { 'share-links': id }) =>
    shareLinks.insert({ ...existing(shareLinks, id), id: ids.next('sl'), description: FRESH }),
  'event-destinations': ({ eventDestinations: rows, ids }, { 'event-destinations': from }) => {
    const id = ids.next('ed');
    rows.insert({ ...existing(rows, from), id, ...rows.sealed({ kind: 'file', name: FRESH }, id) });
  },
  'event-subscriptions': ({ eventSubscriptions, ids }, { 'event-subscriptions': id }) =>
    eventSubscriptions.insert({ ...existing(eventSubscriptions, id), id: ids.next('esb'), description: FRESH }),
  'message-rules': ({ messageRules, ids }, { 'message-rules': id }) =>
    messageRules.insert({ ...existing(messageRules, id), id: ids.next('mr'), description: FRESH }),
  'condition-history': ({ conditionHistory, ids }, { 'condition-history': id }) =>
    conditionHistory.insert({ ...existing(conditionHistory, id), id: ids.next('cnd'), name: FRESH }),
};

function existing<Row>(table: { get(id: string): Row | null }, id: string): Row {
  const row = table.get(id);
  if (row === null) throw new Error(`no ${id}`);
  return row;
}

const PHONE = { width: 360, height: 740 };
const OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';

/** Waits until an element with this text has the focus. */
async function focusIsOn(page: Page, text: string): Promise<void> {
  await until(async () => (await page.evaluate('document.activeElement.textContent')) === text, `focus on ${text}`, {
    withinMs: 20_000,
    everyMs: 50,
  });
}

describe('the views of the dashboard', unless(NO_CHROMIUM), () => {
  let browser: Browser;
  let gateway: TestGateway;
  let filled: Filled;

  beforeAll(async () => {
    [browser, gateway] = await Promise.all([launchBrowser(), startTestGateway()]);
    filled = await fillStore(gateway.store, HOSTILE);
  }, 120_000);
  afterAll(async () => {
    await browser.close();
    await gateway.close();
  });

  const goTo = (page: Page, view: string) => page.goto(`${gateway.apiUrl}/#/${view}`);
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
  const link = (page: Page, name: string) => page.getByRole('link', { name, exact: true });

  /** For a test that changes what others look at. */
  async function ownGateway() {
    const own = await startTestGateway();
    onTestFinished(() => own.close());
    return { ...own, filled: await fillStore(own.store, 'a text') };
  }

  it('shows what needs attention first, and leads to it', async () => {
    const { page } = await openDashboard(browser, gateway);
    const problems = page.locator('.problems li');
    await problems.nth(5).waitFor();
    const texts = (await problems.allTextContents()).join('\n');
    expect(texts).toContain('Clients refuse it: upload a new one.');
    expect(texts).toContain('Clients with its certificates are refused.');
    expect(texts).toContain('No certificate for *.site.example.com');
    expect(texts).toContain('cam.site.example.com:443 +1 has no tunnel online');
    expect(texts).toMatch(/cabinet-7 is offline.*Last seen 3 days ago/s);
    expect(texts).toContain('cabinet-8 waits for approval');
    await link(page, 'Open: cabinet-8 waits for approval').click();
    await page.getByText('The device gets an authtoken for its own names below *.site.example.com.').waitFor();
    await button(page, 'Approve').click();
    await page.locator('.facts').getByText('Never online').waitFor();
  });

  it('shows endpoints within the page beside the menu, and at least 14 letters of a URL in a line', async () => {
    const { page } = await openDashboard(browser, gateway, 'endpoints', { viewport: { width: 800, height: 700 } });
    const url = page.locator('tbody .url').first();
    await url.waitFor();
    for (const width of [800, 900, 1000]) {
      await page.setViewportSize({ width, height: 700 });
      expect([width, await page.evaluate(OVERFLOW)]).toEqual([width, 0]);
      expect((await url.boundingBox())?.width, String(width)).toBeGreaterThan(100);
    }
  });

  it('runs nothing that texts contain, and has no serious accessibility problem, in any view', async () => {
    const { page, troubles } = await openDashboard(browser, gateway, '', { viewport: PHONE });
    const found: Record<string, string[]> = {};
    const wordsOf = async () => {
      const problems: string[] = [];
      for (const width of [PHONE.width, 800]) {
        await page.setViewportSize({ width, height: PHONE.height });
        const wide = await page.evaluate(OVERFLOW);
        if (wide !== 0) problems.push(`${wide} px too wide`);
        for (const word of await brokenWords(page)) problems.push(`${width} px: ${word}`);
      }
      await page.setViewportSize(PHONE);
      return problems;
    };
    const examine = async (view: string, within = '#content') => {
      const problems = [...(await seriousProblems(page, within)), ...(await wordsOf())];
      if (problems.length > 0) found[view] = problems;
    };
    /** The dialogs that the item's page leads to. */
    const examineDialogs = async (view: string) => {
      const links = await page.locator(`#content a[href^="#/${view}/"]`).all();
      for (const path of new Set(await Promise.all(links.map((one) => one.getAttribute('href'))))) {
        await goTo(page, String(path).slice(2));
        await page.locator('dialog').first().waitFor();
        const problems = await wordsOf();
        if (problems.length > 0) found[String(path)] = problems;
      }
    };
    await page.locator('.problems li').first().waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    await examine('overview');
    for (const [view, id] of Object.entries(filled)) {
      await goTo(page, view);
      await page.locator('tbody tr').first().waitFor();
      await examine(view);
      if ((await page.locator('.section-head a[href$="/new"]').count()) > 0) {
        await goTo(page, `${view}/new`);
        await page.locator('dialog form').waitFor();
        await examine(`${view}/new`, 'dialog');
      }
      await goTo(page, `${view}/${id}`);
      await page.locator('.facts').waitFor();
      await examine(`${view}/${id}`);
      expect(await page.locator('#content').textContent()).toContain('alert(1)');
      await examineDialogs(`${view}/${id}`);
    }
    await goTo(page, `edges/${filled.edges}/delete`);
    await page.locator('dialog .danger').waitFor();
    await examine('edges/delete', 'dialog');
    await goTo(page, 'agents');
    await page.locator('.empty, tbody tr').first().waitFor();
    await examine('agents');
    await goTo(page, 'add-site');
    await page.getByLabel('Domain of the site').waitFor();
    await examine('add-site');
    expect(found).toEqual({});
    expect(troubles).toEqual([]);
  }, 180_000);

  it('sets, changes and removes a module of a TLS edge, and says what a deletion stops', async () => {
    // The others look at the edge as it was.
    const { store } = gateway;
    const edge = store.tlsEdges.get(filled.edges) as TlsEdgeRow;
    const id = store.ids.next('edgtls');
    await store.database.write(() => store.tlsEdges.insert({ ...edge, id, hostports: ['own.site.example.com:443'] }));
    const { page } = await openDashboard(browser, gateway, `edges/${id}`);
    await link(page, 'Set mutual TLS').click();
    await page.getByRole('checkbox').click();
    await button(page, 'Save').click();
    await link(page, 'Change mutual TLS').waitFor();
    expect(store.tlsEdges.get(id)?.mutual_tls).toEqual({
      enabled: true,
      certificate_authority_ids: [filled.authorities],
    });
    await link(page, 'Change backend').click();
    await page.getByRole('combobox', { name: 'Backend' }).selectOption(filled.responses);
    await button(page, 'Save').click();
    await page.locator(`a[href$="${filled.responses}"]`).waitFor();
    await link(page, 'Remove mutual TLS').click();
    await page.getByText('Clients without a certificate can connect.').waitFor();
    await button(page, 'Remove module').click();
    await link(page, 'Set mutual TLS').waitFor();
    expect(store.tlsEdges.get(id)?.mutual_tls).toBeNull();
    await link(page, 'Change traffic policy').click();
    await page.getByRole('textbox', { name: 'Traffic policy' }).fill('on_tcp_connect: 7');
    await button(page, 'Save').click();
    await page.locator('.notice.bad .code-line', { hasText: /^ERR_NGROK_\d+$/ }).waitFor();
    await button(page, 'Close').click();
    await link(page, 'Delete').click();
    await page.getByText('own.site.example.com:443 goes offline for all clients.').waitFor();
  });

  it('sends events to destinations, and shows the secret of a webhook once', async () => {
    const { page } = await openDashboard(browser, gateway, 'event-destinations/new', { viewport: PHONE });
    const heading = (name: string) => page.getByRole('heading', { name, exact: true });
    await page.getByLabel('URL').fill('http://siem.example.com');
    await button(page, 'Create event destination').click();
    await page.locator('.problem', { hasText: 'must be an https:// URL' }).waitFor();
    await page.getByLabel('URL').fill('https://siem.example.com/');
    await button(page, 'Create event destination').click();
    const secret = page.locator('.with-copy pre');
    expect(await secret.innerText()).toMatch(/^whsec_/);
    const first = await secret.innerText();
    await button(page, 'Done').click();
    await link(page, 'New signing secret').click();
    await button(page, 'Save').click();
    expect(await secret.innerText()).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(await secret.innerText()).not.toBe(first);
    await button(page, 'Done').click();
    await goTo(page, 'event-destinations/new');
    await page.getByRole('radio', { name: 'File' }).click();
    await page.getByLabel('Name', { exact: true }).fill('changes');
    await button(page, 'Create event destination').click();
    await heading('changes.jsonl').waitFor();
    await page.getByText('it gets no events yet').waitFor();
    await button(page, 'Add subscription').click();
    expect(await page.getByRole('checkbox', { name: 'changes.jsonl' }).isChecked()).toBe(true);
    await button(page, 'Create event subscription').click();
    await link(page, 'All events').click();
    await heading('All events').waitFor();
    await link(page, 'Edit').click();
    await page.getByLabel('Types of events').fill('no_such_type');
    await button(page, 'Save').click();
    await page.locator('.problem', { hasText: 'no_such_type is not a type' }).waitFor();
    await page.getByLabel('Types of events').fill('event_subscription_updated.v0');
    await button(page, 'Save').click();
    await heading('event_subscription_updated.v0').waitFor();
    const file = join(gateway.dataDir, 'gateway', 'events', 'changes.jsonl');
    await expect.poll(() => readFile(file, 'utf8').catch(() => '')).toContain('"event_subscription_updated.v0"');
    await page.locator('.facts').getByRole('link', { name: 'changes.jsonl' }).click();
    await page.locator('.facts').getByText('Up to date').waitFor();
    await page.getByText('Delivered up to').waitFor();
  });

  it('refuses what is not a number within its bounds at its field, and sends nothing', async () => {
    const { page } = await openDashboard(browser, gateway, `add-site/${filled.domains}`);
    const before = gateway.store.enrolmentKeys.page(null, 10).length;
    const refused = async (label: string, value: string, problem: string) => {
      const field = page.getByLabel(label, { exact: true });
      await field.fill(value);
      await page.locator('form button[type=submit]').last().click();
      await page.locator('.problem', { hasText: problem }).waitFor();
      expect(await field.evaluate('document.activeElement.labels[0].textContent')).toBe(label);
      return field;
    };
    const devices = 'Enter a whole number from 1 to 1,000,000.';
    for (const value of ['5 devices', 'abc', '0', '-1', '1e3']) await refused('Number of devices', value, devices);
    expect(await seriousProblems(page)).toEqual([]);
    await (await refused('Number of devices', '1.5', devices)).fill('5');
    await page.locator('.problem', { hasText: devices }).waitFor({ state: 'hidden' });
    await refused('Valid for days', '-3', 'Enter a whole number from 1 to 36,500.');
    expect(gateway.store.enrolmentKeys.page(null, 10)).toHaveLength(before);
    await goTo(page, 'responses/new');
    await refused('Status', 'abc', 'Enter a whole number from 200 to 599.');
    await refused('Status', '99', 'Enter a whole number from 200 to 599.');
    expect(gateway.store.httpResponseBackends.page(null, 10)).toHaveLength(1);
  });

  it('asks at its field for what an item needs, and lets an authtoken bind everything only by choice', async () => {
    const { page } = await openDashboard(browser, gateway);
    const sent: string[] = [];
    page.on('request', (request) => request.method() === 'POST' && sent.push(request.url()));
    for (const [view, label, problem, width] of [
      ['edges/new', 'Addresses', 'Enter at least one address, such as cam.example.com:443.', 360],
      ['tunnel-groups/new', 'Labels', 'Enter at least one label, such as app=camera.', 800],
      ['domains/new', 'Domain', 'Enter a domain, such as cam.example.com.', 1440],
      ['invites/new', 'Site', 'Enter the domain of the site, such as *.site-a.example.com.', 360],
      ['certificates/new', 'Certificate chain (PEM)', 'Paste the certificate chain.', 800],
      ['add-site', 'Domain of the site', 'Enter a domain, such as site-a.example.com.', 1440],
      ['authtokens/new', 'Rules', 'Enter at least one rule, such as bind:*.site-a.example.com.', 360],
    ] as const) {
      await page.setViewportSize({ width, height: 900 });
      await goTo(page, view);
      await page.locator('form').getByLabel(label, { exact: true }).waitFor();
      await page.locator('form button[type=submit]').click();
      await page.locator('.problem', { hasText: problem }).waitFor();
      expect(await page.evaluate('document.activeElement.labels[0].textContent')).toBe(label);
      expect(await page.evaluate(OVERFLOW)).toBe(0);
    }
    expect(await seriousProblems(page, 'dialog')).toEqual([]);
    await goTo(page, `edges/${filled.edges}/backend`);
    await page.getByRole('combobox', { name: 'Backend' }).selectOption('');
    await button(page, 'Save').click();
    await page.locator('.problem', { hasText: 'Choose a backend.' }).waitFor();
    expect(sent).toEqual([]);
    await goTo(page, 'authtokens/new');
    await page.getByText('Anything', { exact: true }).click();
    expect(await page.getByLabel('Rules', { exact: true }).count()).toBe(0);
    await button(page, 'Create authtoken').click();
    await page.getByText('It is shown only once').waitFor();
    expect(gateway.store.credentials.page(null, 1)).toMatchObject([{ acl: [] }]);
  });

  it('leaves labels and headers as they are when something else is changed', async () => {
    const { store } = gateway;
    const { tunnelGroupBackends: groups, httpResponseBackends: responses, database, ids } = store;
    const common = { created_at: store.now(), description: 'before', metadata: null };
    const group = { ...common, id: ids.next('bkdtg'), labels: { 'example.com:role': 'camera', place: 'a:b' } };
    const response = { ...common, id: ids.next('bkdhr'), body: '', headers: { 'cache-control': 'max-age=5' } };
    await database.write(() => {
      groups.insert(group);
      responses.insert({ ...response, status_code: 200 });
    });
    const { page } = await openDashboard(browser, gateway);
    for (const view of [`tunnel-groups/${group.id}`, `responses/${response.id}`]) {
      await goTo(page, `${view}/edit`);
      await page.getByLabel('Description', { exact: true }).fill('after');
      await button(page, 'Save').click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    }
    expect(groups.get(group.id)).toMatchObject({ description: 'after', labels: group.labels });
    expect(responses.get(response.id)).toMatchObject({ description: 'after', headers: response.headers });
    await database.write(() => [groups.delete(group.id), responses.delete(response.id)]);
  });

  it('shows what the API refuses at its field, by its label and line', async () => {
    const { page } = await openDashboard(browser, gateway, 'authtokens/new');
    for (const width of [360, 800, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      const rules = page.getByLabel('Rules', { exact: true });
      await rules.fill('bind:cam.example.com\n\nnonsense');
      await button(page, 'Create authtoken').click();
      await page.locator('.problem', { hasText: /^nonsense: / }).waitFor();
      await page.locator('.notice.bad', { hasText: 'Correct what is marked below.' }).waitFor();
      expect(await page.getByRole('dialog').textContent()).not.toMatch(/acl|operation_id/);
      expect(await page.evaluate(OVERFLOW)).toBe(0);
    }
    expect(await seriousProblems(page, 'dialog')).toEqual([]);
    await goTo(page, 'edges/new');
    await page.getByLabel('Addresses', { exact: true }).fill('nonsense');
    await button(page, 'Create TLS edge').click();
    await page.locator('.problem', { hasText: /^nonsense: / }).waitFor();
    await goTo(page, 'domains/new');
    await page.getByLabel('Domain', { exact: true }).fill('new.localhost');
    await button(page, 'Reserve domain').click();
    await page.locator('.problem', { hasText: "names below the gateway's own domain use" }).waitFor();
    await goTo(page, `ip-policies/${filled['ip-policies']}/edit`);
    await page.getByLabel('Description').fill('x'.repeat(300));
    await button(page, 'Save').click();
    await page.getByText('The changes were not saved').waitFor();
    await page.locator('.problem:not([hidden])').waitFor();
  });

  it('takes a deleted item off its list at once, and moves the focus to the heading', async () => {
    const { store } = gateway;
    const id = store.ids.next('ipp');
    await store.database.write(() =>
      store.ipPolicies.insert({ id, created_at: store.now(), description: 'short-lived', metadata: null }),
    );
    const { page } = await openDashboard(browser, gateway, 'ip-policies');
    await page.getByRole('link', { name: /short-lived/ }).click();
    await link(page, 'Delete').click();
    // The list is not needed for that.
    await page.route('**/ip_policies', (route) => void setTimeout(() => route.continue(), 3_000));
    await button(page, 'Delete IP policy').click();
    await focusIsOn(page, 'IP policies');
    expect(await page.getByRole('link', { name: /short-lived/ }).count()).toBe(0);
  });

  it('says why it asks to sign in again, and keeps the form', async () => {
    const { page } = await openDashboard(browser, gateway, 'authtokens/new');
    await page.getByLabel('Description').fill('half-finished');
    const { page: other } = await openDashboard(browser, gateway);
    await other.getByText('Sign out').first().click();
    await other.getByRole('button', { name: 'Sign out everywhere' }).click();
    await other.getByRole('heading', { name: 'Sign in' }).waitFor();
    expect(await other.getByText('You are signed out').count()).toBe(0);
    await page.getByText('You are signed out: the session expired').waitFor();
    for (const width of [360, 800, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      expect(await page.evaluate(OVERFLOW)).toBe(0);
      // It covers what the page showed.
      expect(await page.evaluate("document.elementFromPoint(20, 20).closest('.ended') !== null")).toBe(true);
    }
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.getByLabel('API key', { exact: true }).waitFor();
    expect(await seriousProblems(page)).toEqual([]);
    const code = issueDashboardCode(gateway.store.box, Date.now());
    await page.goto(`${gateway.apiUrl}/#code=${code}`);
    await page.getByText('You are signed out').waitFor({ state: 'detached' });
    expect(await page.getByLabel('Description').inputValue()).toBe('half-finished');
    expect(page.url()).toBe(`${gateway.apiUrl}/#/authtokens/new`);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByText('Anything', { exact: true }).click();
    await button(page, 'Create authtoken').click();
    await page.getByText('It is shown only once').waitFor();
  });

  it('adds and deletes the rules of an IP policy', async () => {
    const { page } = await openDashboard(browser, gateway, `ip-policies/${filled['ip-policies']}`);
    await button(page, 'Add rule').click();
    await page.getByLabel('Address range').fill('2001:db8::/32');
    await page.getByText('Deny', { exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click();
    const row = page.getByRole('row', { name: /2001:db8::\/32/ });
    await row.getByRole('button', { name: 'Delete' }).click();
    await page.getByText('Clients of 2001:db8::/32 may connect where another rule allows it.').waitFor();
    await button(page, 'Delete rule').click();
    await row.waitFor({ state: 'detached' });
    await focusIsOn(page, 'Rules');
    expect(gateway.store.ipPolicyRules.page(null, 10).map(({ cidr }) => cidr)).toEqual(['203.0.113.0/24']);
  });

  it('creates a cloud endpoint, changes its policy and deletes it', async () => {
    const { page, troubles } = await openDashboard(browser, gateway, 'endpoints/new');
    const policy = (body: string) =>
      JSON.stringify({ on_http_request: [{ actions: [{ type: 'custom-response', config: { body } }] }] });
    const text = page.getByRole('textbox', { name: 'Traffic policy' });
    await page.getByLabel('URL', { exact: true }).fill('https://asleep.localhost');
    await text.fill('on_http_request: 7');
    await button(page, 'Create cloud endpoint').click();
    await page.locator('.problem:not([hidden])').waitFor();
    await text.fill(policy('asleep'));
    await button(page, 'Create cloud endpoint').click();
    await page.getByRole('heading', { name: 'https://asleep.localhost' }).waitFor();
    const answer = async () => (await getPublic(gateway, 'https://asleep.localhost:443/')).body;
    expect(await answer()).toBe('asleep');
    await link(page, 'Edit').click();
    await text.fill(policy('awake'));
    await button(page, 'Save').click();
    await page.locator('pre', { hasText: 'awake' }).waitFor();
    expect(await answer()).toBe('awake');
    await link(page, 'Delete').click();
    await page.getByText('goes offline at once').waitFor();
    await button(page, 'Delete cloud endpoint').click();
    await focusIsOn(page, 'Endpoints');
    expect(gateway.store.cloudEndpoints.where('host = ?', ['asleep.localhost'])).toEqual([]);
    expect(troubles.filter((each) => !each.includes('400'))).toEqual([]);
  });

  it('keeps secrets in a vault, and shows no value again', async () => {
    const { page } = await openDashboard(browser, gateway, `vaults/${filled.vaults}`);
    await button(page, 'Add secret').click();
    await page.getByRole('dialog').getByLabel('Name', { exact: true }).fill('token');
    await page.getByLabel('Value', { exact: true }).fill('open-sesame');
    await page.getByRole('dialog').getByRole('button', { name: 'Add secret' }).click();
    const row = page.getByRole('row', { name: /token/ });
    await row.getByRole('button', { name: 'Change value' }).click();
    expect(await page.getByLabel('Value', { exact: true }).inputValue()).toBe('');
    await page.getByLabel('Value', { exact: true }).fill('another');
    await button(page, 'Save').click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(gateway.store.vaultSecrets.read(filled.vaults, 'token')).toBe('another');
    expect(await page.content()).not.toMatch(/open-sesame|another/);
    await row.getByRole('button', { name: 'Delete' }).click();
    await button(page, 'Delete secret').click();
    await row.waitFor({ state: 'detached' });
  });

  it('finds changes in the audit log by kind, object, key and time, and exports what is found', async () => {
    const own = await ownGateway();
    const { page } = await openDashboard(browser, own, 'audit-log');
    const rows = page.locator('tbody tr');
    await rows.filter({ hasText: 'IP policy updated' }).waitFor();
    await page.goto(`${own.apiUrl}/#/ip-policies/${own.filled['ip-policies']}/edit`);
    await page.getByLabel('Description').fill('office');
    await button(page, 'Save').click();
    await page.locator('.facts', { hasText: 'office' }).waitFor();
    await page.goto(`${own.apiUrl}/#/audit-log`);
    await rows.nth(2).waitFor();
    await page.getByLabel('By', { exact: true }).fill('gateway');
    await rows.nth(2).waitFor({ state: 'detached' });
    const texts = [expect.stringContaining('office'), expect.stringContaining('Dashboard session created')];
    expect(await rows.allTextContents()).toEqual(texts);
    await page.getByLabel('Kind').selectOption('Domain');
    await page.getByText('Nothing matches.').waitFor();
    await page.getByLabel('Kind').selectOption('IP policy');
    await page.getByLabel('When').selectOption('Last hour');
    await rows.first().waitFor();
    // The filters are in the address.
    await page.reload();
    await rows.first().waitFor();
    expect(await rows.count()).toBe(1);
    const download = page.waitForEvent('download');
    await link(page, 'Export JSON lines').click();
    const lines = (await readFile(await (await download).path(), 'utf8')).trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ by: 'gateway', object: { description: 'office' } }]);
    await rows.first().getByRole('link').click();
    await page.getByRole('row', { name: /description a text office/ }).waitFor();
  });

  it.each([360, 1200])('shows what has changed in a policy, and undoes it, %i px wide', async (width) => {
    const own = await ownGateway();
    const { cloudEndpoints, auditLog, database } = own.store;
    const row = existing(cloudEndpoints, own.filled.endpoints);
    const policy = {
      expressions: [HOSTILE],
      actions: [{ type: 'basic-auth', config: { credentials: ['anna:sesame-1'] } }],
    };
    const changed = { ...row, traffic_policy: JSON.stringify({ on_http_request: [policy] }) };
    await database.write(() => cloudEndpoints.update(changed), { by: 'gateway', from: null });
    const event = auditLog.latestId();
    const { page } = await openDashboard(browser, own, `audit-log/${event}`, {
      viewport: { width, height: 800 },
    });
    await page.getByRole('heading', { name: 'Traffic policy' }).waitFor();
    const lines = (name: 'insertion' | 'deletion') => page.getByRole(name).allTextContents();
    expect(await lines('insertion')).toContain('+      - anna:[masked]');
    expect(await lines('deletion')).toContain('-  - type: deny');
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    expect(await seriousProblems(page)).toEqual([]);

    await link(page, 'Undo').click();
    await page.getByText('If the policy has been changed since, nothing happens.').waitFor();
    await button(page, 'Undo the change').click();
    await page.getByRole('deletion').filter({ hasText: 'anna' }).waitFor();
    expect(cloudEndpoints.get(row.id)?.traffic_policy).toBe(row.traffic_policy);
    expect(page.url()).toContain(`/#/audit-log/${auditLog.latestId()}`);
    await page.goto(`${own.apiUrl}/#/audit-log/${event}/undo`);
    await button(page, 'Undo the change').click();
    await page.getByText('has been changed since by').waitFor();
  });

  it('shows what others add to a list, to the overview or to an item, without a reload', async () => {
    const own = await ownGateway();
    const { store } = own;
    const { page, troubles } = await openDashboard(browser, own);
    const show = (view: string) => page.goto(`${own.apiUrl}/#/${view}`);
    await page.locator('.problems li').first().waitFor();
    const loads = await page.evaluate('performance.timeOrigin');
    for (const [view, add] of Object.entries(ADD)) {
      await show(view);
      await page.locator('tbody tr').first().waitFor();
      expect(await page.getByText(FRESH).count(), view).toBe(0);
      await store.database.write(() => add(store, own.filled));
      await page.locator('tbody').getByText(FRESH).first().waitFor();
    }
    await show(`ip-policies/${own.filled['ip-policies']}`);
    await page.getByText('203.0.113.0/24').waitFor();
    const rule = store.ipPolicyRules.page(null, 1)[0];
    const another = { id: store.ids.next('ipr'), cidr: '198.51.100.0/24' };
    await store.database.write(() => rule && store.ipPolicyRules.insert({ ...rule, ...another }));
    await page.getByText('198.51.100.0/24').waitFor();
    await store.database.write(() => store.ipPolicyRules.delete(another.id));
    await page.getByText('198.51.100.0/24').waitFor({ state: 'detached' });
    // A command is another process.
    await show('');
    await page.getByText(`${FRESH} waits for approval`).waitFor();
    const command = openGatewayStore({ dataDir: own.dataDir, encryptionKey: null });
    onTestFinished(() => command.database.close());
    const device = command.devices.named(FRESH)[0];
    await command.database.write(() => command.devices.delete(String(device?.id)));
    await page.getByText(`${FRESH} waits for approval`).waitFor({ state: 'detached' });
    expect(await page.evaluate('performance.timeOrigin')).toBe(loads);
    expect(troubles).toEqual([]);
  });

  it('says when a device was last seen as soon as it is offline', async () => {
    const own = await ownGateway();
    const { store } = own;
    const token = await store.database.write(() => {
      const { row, token } = issueCredential(store, { acl: [] });
      store.devices.update({
        ...existing(store.devices, own.filled.devices),
        credential_id: row.id,
        status: 'enrolled',
      });
      return token;
    });
    const { page } = await openDashboard(browser, own, 'devices');
    const row = page.getByRole('row', { name: /cabinet-7/ });
    await row.getByText('3 days ago').waitFor();
    const proxy = await FlakyProxy.start(own.sessionAddress);
    onTestFinished(() => proxy.refuse());
    await agentSession({ ...own, authtoken: token }, proxy.address).connect();
    await row.getByText('Online', { exact: true }).waitFor();
    await proxy.cut();
    await row.getByText('Offline', { exact: true }).waitFor();
    expect(await row.textContent()).toMatch(/now|\d+ s(econds)? ago/);
  });

  it('shows agents and live figures of their endpoints, and disconnects an agent', async () => {
    const service = await startHttpService((req, res) => {
      res.statusCode = req.url === '/broken' ? 500 : 200;
      res.end('x'.repeat(5000));
    });
    onTestFinished(() => service.close());
    const session = await agentSession(gateway).metadata(HOSTILE).connect();
    onTestFinished(() => session.close().catch(() => {}));
    const { store } = gateway;
    const device = {
      ...(store.devices.get(filled.devices) as DeviceRow),
      id: store.ids.next('dev'),
      name: 'cabinet-9',
    };
    const credential_id = store.credentials.page(null, 100).at(-1)?.id ?? null;
    const own = { site: 'xn--bcher-kva.example', install_hash: randomBytes(32), credential_id };
    await store.database.write(() => store.devices.insert({ ...device, ...own }));
    const listener = await session.httpEndpoint().domain('live.localhost').metadata(HOSTILE).listen();
    void listener.forward(service.url);
    const { page, troubles } = await openDashboard(browser, gateway, 'endpoints');
    const row = page.getByRole('row', { name: /live\.localhost/ });
    await row.waitFor();
    for (const path of ['/', '/', '/broken']) await getPublic(gateway, `https://live.localhost:443${path}`);
    await row.getByRole('cell', { name: '3', exact: true }).waitFor();
    await row.getByRole('cell', { name: '1', exact: true }).waitFor();
    await row.getByRole('cell', { name: /^15 KiB$/ }).waitFor();
    await row.getByRole('cell', { name: 'cabinet-9' }).waitFor();
    expect(await page.title()).toBe('Endpoints – localhost');
    await row.getByRole('link').click();
    await page.getByText('counted since the endpoint came online').waitFor();
    await page.getByRole('link', { name: /^https:\/\/live\.localhost.* \(opens in a new tab\)$/ }).waitFor();
    await page.locator('.facts a[href*="ts_"]').click();
    await page.getByRole('row', { name: /live\.localhost/ }).waitFor();
    await page.getByRole('heading', { name: 'cabinet-9' }).waitFor();
    expect(await page.title()).toBe('cabinet-9 – Agents – localhost');
    await session.httpEndpoint().domain('later.localhost').listen();
    await page.getByRole('row', { name: /later\.localhost/ }).waitFor();
    await link(page, 'Disconnect').click();
    await page.getByRole('heading', { name: 'Disconnect cabinet-9?' }).waitFor();
    await page.getByText('All of its endpoints go offline.').waitFor();
    await button(page, 'Disconnect agent').click();
    // Whether the page of the agent says that it is gone, or its list appears, depends on who is faster.
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await goTo(page, 'agents');
    await page.getByText('No agents online').waitFor();
    await goTo(page, 'devices');
    await page.getByRole('searchbox').fill(device.id);
    for (const width of [360, 800, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await page.getByRole('row', { name: /cabinet-9.*xn--bcher-kva\.example.*bücher\.example/s }).waitFor();
      expect(await page.evaluate(OVERFLOW)).toBe(0);
    }
    await page.getByRole('link', { name: /cabinet-9/ }).click();
    const api = page.getByRole('link', { name: /^https:\/\/agent-cabinet-9\.xn--bcher-kva\.example:\d+/ });
    expect(await api.getAttribute('href')).toMatch(/^https:\/\/agent-cabinet-9\./);
    await page.getByText('agent-cabinet-9.bücher.example').waitFor();
    expect(troubles).toEqual([]);
  });
});
