import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RequestDetail } from '../../src/agent/api/inspection/inspection-reports.ts';
import type { FeedTunnel } from '../../src/agent/api/page/page-routes.ts';
import { launchBrowser, NO_CHROMIUM, openPage, seriousProblems } from '../support/browser.ts';
import { unless } from '../support/requirements.ts';
import {
  type StubAnswers,
  startStubAgent,
  stubInspection,
  stubRequest,
  stubSnapshot,
  stubTunnel,
} from '../support/stub-agent.ts';
import { until } from '../support/until.ts';

const PHONE = { width: 360, height: 740 };
const DESKTOP = { width: 1280, height: 900 };
const MAX_BYTES = 60 * 1024;
const PATIENCE = { withinMs: 60_000, everyMs: 50 };

/** What clients of an API, upstreams and logs could plant. None of it may run. */
const HOSTILE = [
  '<script>window.ran = 1</script>',
  '<img src=x onerror="window.ran = 1">',
  '"><svg onload="window.ran = 1">',
  "javascript:window.ran=1//'",
  '{{constructor.constructor("window.ran = 1")()}}',
  '\u202eevil\u2028</textarea></pre></style>',
].join(' ');
const HOSTILE_URL = 'javascript:window.ran=1//https://';
const OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';

let browser: Browser;

async function show(answers: StubAnswers, options: Parameters<typeof openPage>[2] = {}) {
  const agent = await startStubAgent(answers);
  onTestFinished(() => agent.close());
  return { agent, ...(await openPage(browser, agent.url, options)) };
}

describe("the device's page with any content", unless(NO_CHROMIUM), () => {
  beforeAll(async () => {
    browser = await launchBrowser();
  });
  afterAll(() => browser.close());

  it('shows 1,000 tunnels in part, finds each of them, and a change of one touches nothing else', async () => {
    const tunnels = Array.from({ length: 1000 }, (_, n) => stubTunnel(`tunnel-${n}`));
    const { agent, page } = await show({ snapshot: stubSnapshot(tunnels) });
    const cards = page.locator('.tunnel');
    await page.getByText('1000 of 1000').waitFor();
    expect(await cards.count()).toBe(50);
    const changed = await changesOf(page, '.tunnels', () => {
      const traffic = { ...(tunnels[3]?.traffic as NonNullable<FeedTunnel['traffic']>), requests: 4711 };
      agent.send('/page/events', 'change', { tunnels: [{ id: 'tunnel-997', traffic }] });
      return page.getByText('4,711 requests').waitFor();
    });
    expect(changed).toEqual(['tunnel-997']);
    await page.getByRole('button', { name: 'Show 50 more' }).click();
    await until(async () => (await cards.count()) === 100, 'more tunnels', PATIENCE);
    await page.getByRole('searchbox', { name: 'Filter tunnels' }).fill('tunnel-999');
    await page.getByText('https://tunnel-999.example.com').waitFor();
    expect(await cards.count()).toBe(1);
    // Problems come first, wherever they are.
    await page.getByRole('searchbox', { name: 'Filter tunnels' }).fill('');
    const isFirst = async (name: string) => (await cards.first().textContent())?.includes(`https://${name}.`) ?? false;
    agent.send('/page/events', 'change', { tunnels: [stubTunnel('new')] });
    await until(() => isFirst('new'), 'the new tunnel among those that are shown', PATIENCE);
    agent.send('/page/events', 'change', { tunnels: [{ id: 'tunnel-3', status: 'failed' }] });
    await until(() => isFirst('tunnel-3'), 'problems', PATIENCE);
  });

  it('shows 1,000 captured requests on demand, and a change of one touches nothing else', async () => {
    const all = Array.from({ length: 1000 }, (_, n) => stubRequest(1000 - n));
    const asked: string[] = [];
    const { agent, page } = await show({
      snapshot: stubSnapshot([stubTunnel('cam')]),
      requests: { inspection: stubInspection(1000), requests: all.slice(0, 100) },
      others: {
        '/requests': (path) => {
          asked.push(path);
          const query = new URL(path, 'http://agent').searchParams;
          const before = Number(query.get('before'));
          const contained = query.get('path') ?? '';
          const found = all.filter(({ id, path: each }) => Number(id) < before && each.includes(contained));
          return found.slice(0, Number(query.get('limit')));
        },
      },
    });
    await page.getByRole('link', { name: 'Traffic: cam' }).click();
    const rows = page.locator('.request');
    await until(async () => (await rows.count()) === 100, 'the newest', PATIENCE);
    const changed = await changesOf(page, '.requests', () => {
      agent.send('/requests/events', 'change', { requests: [stubRequest(990, { status: 503 })] });
      return page.getByText('503').waitFor();
    });
    expect(changed).toEqual(['GET /path/990']);
    for (let count = 200; count <= 1000; count += 100) {
      await page.getByRole('button', { name: 'Show more' }).click();
      await until(async () => (await rows.count()) === count, `${count} rows`, PATIENCE);
    }
    expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0);
    expect(asked.length).toBe(5);
    await page.getByRole('searchbox', { name: 'Path contains' }).fill('/PATH/77');
    await until(async () => (await rows.count()) === 11, 'the path', PATIENCE);
    await page.getByRole('combobox', { name: 'Status' }).selectOption('5xx');
    await page.getByText('No captured request matches').waitFor();
  });

  it('says that changes cannot be saved while the disk is full, and why', async () => {
    const snapshot = stubSnapshot([stubTunnel('cam')]);
    const { agent, page } = await show({ snapshot });
    await page.getByRole('heading', { name: 'Online', exact: true }).waitFor();
    const last_error = { code: 'ERR_AGENT_NOT_PERSISTED', message: 'change not saved: the disk is full' };
    agent.send('/page/events', 'change', { status: { ...snapshot.status, storage: { last_error } } });
    await page.getByRole('heading', { name: 'Changes cannot be saved' }).waitFor();
    await page.getByText('change not saved: the disk is full (ERR_AGENT_NOT_PERSISTED)').waitFor();
    agent.send('/page/events', 'change', { status: snapshot.status });
    await page.getByRole('heading', { name: 'Online', exact: true }).waitFor();
  });

  it('shows names in Unicode beside their ASCII form, but no mixture of scripts', async () => {
    const { page } = await show({ snapshot: stubSnapshot([stubTunnel('xn--bcher-kva'), stubTunnel('xn--pypal-4ve')]) });
    await page.getByText('bücher.example.com', { exact: true }).waitFor();
    expect(await page.locator('.tunnel bdi').allTextContents()).toEqual(['bücher.example.com']);
    expect(await page.getByRole('link', { name: /^https:\/\/xn--pypal-4ve\.example\.com/ }).count()).toBe(1);
    for (const width of [360, 800, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await page.getByRole('heading', { name: 'cabinet-7', exact: true }).waitFor();
      expect(await page.evaluate(OVERFLOW)).toBe(0);
    }
    expect(await page.title()).toBe('cabinet-7 – Device agent');
  });

  it('asks the agent for older requests that match the filters', async () => {
    const { page } = await show({
      snapshot: stubSnapshot([stubTunnel('cam')]),
      requests: { inspection: stubInspection(5000), requests: [stubRequest(5000), stubRequest(4999)] },
      others: {
        '/requests': (path) => {
          expect(Object.fromEntries(new URL(path, 'http://agent').searchParams)).toEqual({
            ...{ path: 'rare', status: '4xx', min_duration_ms: '500', before: '4999', limit: '200' },
          });
          return [stubRequest(17, { path: '/Rare', status: 404, duration_ms: 800, state: 'aborted' })];
        },
      },
    });
    await page.goto(`${page.url()}#/tunnels/cam/traffic?path=rare&status=4xx&min_duration_ms=500`);
    await page.getByText('/Rare').waitFor();
    expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0);
    for (const width of [360, 800, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      const pill = await page.locator('.request .badge').boundingBox();
      const method = await page.locator('.request strong').boundingBox();
      expect(method?.x).toBeGreaterThan((pill?.x ?? 0) + (pill?.width ?? 0));
      expect(await page.evaluate(OVERFLOW)).toBe(0);
    }
  });

  it.each([
    ['phone', PHONE],
    ['desktop', DESKTOP],
  ] as const)(
    'shows hostile and long texts on a %s in every field, runs none, and never scrolls sideways',
    async (_, viewport) => {
      const { page, troubles } = await show(hostileAnswers(), { viewport });
      const look = async () => {
        expect(await page.evaluate('window.ran')).toBeUndefined();
        expect(await page.evaluate(OVERFLOW)).toBe(0);
        // What the texts would have become.
        expect(
          await page.locator('script:not([src]), img[src=x], [onload], [onerror], [href^="javascript:"]').count(),
        ).toBe(0);
        // Colours and roles are the same on both.
        if (viewport === PHONE) expect(await seriousProblems(page)).toEqual([]);
      };
      await page.getByText('connect ECONNREFUSED').first().waitFor();
      await page.getByRole('heading', { name: 'What to do' }).waitFor();
      await look();
      const open = async (route: string, ready: string) => {
        await page.goto(`${new URL(page.url()).origin}/#/${route}`);
        await page.locator(ready).first().waitFor();
        await look();
      };
      await open('doctor', '.findings li');
      await open('tunnels/hostile/qr', '.qr path[d^=M]');
      await open('tunnels/hostile/policy', 'textarea');
      await page.getByRole('button', { name: 'Save policy' }).click();
      await page.locator('.editor-problems li').first().waitFor();
      await look();
      await open('tunnels/hostile/delete', '.dialog .danger');
      await page.getByRole('button', { name: 'Delete tunnel' }).click();
      await page.locator('.notice.bad .code-line').waitFor();
      await look();
      await open('start', '.dialog form');
      await page.getByLabel('Forward to').fill(HOSTILE);
      await page.getByRole('button', { name: 'Start tunnel' }).click();
      await page.locator('.notice.bad .code-line').waitFor();
      await look();
      await open('tunnels/hostile/traffic', '.request');
      await open('tunnels/hostile/traffic/1', '.messages li');
      await page.getByRole('button', { name: 'Reveal secrets' }).click();
      await page.getByRole('button', { name: 'Mask secrets' }).waitFor();
      await look();
      await open('tunnels/hostile/traffic/1/edit', '.dialog form');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.locator('.notice.bad .code-line').waitFor();
      await look();
      expect(troubles).toEqual([]);
    },
  );

  it('says when the agent is gone, keeps what was known, and recovers automatically', async () => {
    const { agent, page, troubles } = await show({ snapshot: stubSnapshot([stubTunnel('stays')]) });
    await page.getByText('https://stays.example.com').waitFor();
    await agent.down();
    await page.getByRole('heading', { name: 'No answer from the agent' }).waitFor();
    await page.getByText('Showing what was known').waitFor();
    expect(await page.getByText('https://stays.example.com').count()).toBe(1);
    expect(await seriousProblems(page)).toEqual([]);
    await agent.up();
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('heading', { name: 'Online' }).waitFor();
    expect(troubles).toEqual([]);
  });

  it('says why the device is offline, and what to do', async () => {
    const message = 'connect ECONNREFUSED 192.0.2.1:443';
    const snapshot = stubSnapshot([]);
    const session = { ...snapshot.status.session, state: 'offline' as const, last_error: { code: null, message } };
    const finding = {
      check: 'gateway',
      title: 'Gateway',
      status: 'failed',
      detail: message,
      advice: 'start the gateway',
    };
    const { page } = await show(
      {
        snapshot: { ...snapshot, status: { ...snapshot.status, session } },
        others: { '/page/doctor': { findings: [finding] } },
      },
      { colorScheme: 'dark' },
    );
    await page.getByRole('heading', { name: 'Offline' }).waitFor();
    await page.getByRole('heading', { name: 'What to do' }).waitFor();
    await page.getByText('start the gateway').waitFor();
    await page.getByRole('link', { name: 'Diagnose' }).click();
    await page.getByText('1 problem found').waitFor();
    expect(await seriousProblems(page)).toEqual([]);
  });

  it(`takes at most ${MAX_BYTES / 1024} KiB in all, and loads the inspector only when it is opened`, async () => {
    const { page } = await show({
      snapshot: stubSnapshot([stubTunnel('size')]),
      requests: { inspection: stubInspection(0), requests: [] },
    });
    const files = async () =>
      (await page.evaluate(`
        [...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
          .filter(({ name }) => !/\\/(?:page|tunnels)\\//.test(name))
          .map(({ name, encodedBodySize }) => [name, encodedBodySize])`)) as [string, number][];
    await page.getByRole('heading', { name: 'Online' }).waitFor();
    expect((await files()).filter(([name]) => name.includes('inspector'))).toEqual([]);
    await page.getByRole('link', { name: 'QR code: size' }).click();
    await page.locator('.qr path[d^=M]').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'Traffic: size' }).click();
    await page.getByText('Waiting for requests').waitFor();
    const all = await files();
    expect(all.filter(([name]) => name.includes('inspector')).length).toBeGreaterThan(0);
    // A file that was loaded ahead is listed twice.
    expect([...new Map(all).values()].reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(MAX_BYTES);
  });
});

/** The beginnings of the items of a list that change while something happens. */
async function changesOf(page: Page, list: string, act: () => Promise<unknown>): Promise<string[]> {
  await page.evaluate(`
    window.changed = new Set();
    new MutationObserver((records) => {
      for (const { target } of records) window.changed.add((target.parentElement ?? target).closest('li') ?? target);
    }).observe(document.querySelector('${list}'), { subtree: true, childList: true, characterData: true, attributes: true });`);
  await act();
  const found = (await page.evaluate(
    "[...window.changed].map((item) => (item.querySelector('h3, .request-target') ?? item).textContent.trim())",
  )) as string[];
  return found;
}

/** Hostile texts wherever other people than the device's owner have a say. */
function hostileAnswers(): StubAnswers {
  const label = 'a-very-long-label-of-sixty-characters-that-does-not-end-soon';
  const error = { code: HOSTILE, message: `connect ECONNREFUSED ${HOSTILE}` };
  const refusal = {
    error_code: HOSTILE,
    msg: HOSTILE,
    details: { [HOSTILE]: HOSTILE, forwards_to: HOSTILE, path: HOSTILE },
  };
  const tunnels = [
    stubTunnel('hostile', {
      url: HOSTILE_URL,
      url_part: HOSTILE,
      forwards_to: HOSTILE,
      domain: HOSTILE,
      status: 'failed',
      last_error: error,
      upstream: { state: 'refused', since: null, reason: HOSTILE },
    }),
    stubTunnel(`${label}.${label}.${label}`),
  ];
  const snapshot = stubSnapshot(tunnels, {
    name: HOSTILE,
    log: [{ number: 1, time: new Date().toISOString(), level: 'warn', msg: HOSTILE, fields: { [HOSTILE]: HOSTILE } }],
  });
  const { session } = snapshot.status;
  const finding = { check: HOSTILE, title: HOSTILE, status: 'failed', detail: HOSTILE, advice: HOSTILE };
  const summary = stubRequest(1, {
    kind: 'events',
    method: HOSTILE,
    path: `/${HOSTILE}${label.repeat(20)}`,
    host: HOSTILE,
    client: HOSTILE,
    content_type: HOSTILE,
    error: HOSTILE,
    messages: 1,
    replay_of: HOSTILE,
  });
  const headers = [{ name: HOSTILE, value: HOSTILE + label.repeat(20) }];
  const sizes = { bytes: 9, captured_bytes: 9, truncated: true, decoded_bytes: 9, error: HOSTILE };
  const text = { ...sizes, content_type: 'text/html', content_encoding: HOSTILE, text: HOSTILE, base64: null };
  const form = { ...text, content_type: 'application/x-www-form-urlencoded', text: `a=${encodeURIComponent(HOSTILE)}` };
  const detail: RequestDetail = {
    ...summary,
    http_version: HOSTILE,
    request: { headers, trailers: headers, body: form },
    response: { http_version: HOSTILE, status_text: HOSTILE, headers, trailers: headers, body: text },
    timing: { sending_ms: 1, waiting_ms: 1, receiving_ms: 1 },
    gateway: {
      path: `/${HOSTILE}`,
      upstream_path: HOSTILE,
      client: HOSTILE,
      status: 403,
      error_code: HOSTILE,
      duration_ms: 1,
      rules: [
        {
          phase: 'on_http_request',
          place: HOSTILE,
          name: HOSTILE,
          actions: [HOSTILE],
          outcome: { kind: 'forward', url: HOSTILE },
        },
      ],
    },
    masked: true,
    replayable: true,
  };
  const message = { number: 1, from: 'upstream', type: 'event', at: summary.started_at, bytes: 9, truncated: true };
  return {
    snapshot: {
      ...snapshot,
      status: {
        ...snapshot.status,
        version: HOSTILE,
        session: { ...session, state: 'offline', gateway: HOSTILE, last_error: error },
        remote_api: { url: HOSTILE_URL, status: 'failed', since: session.since, last_error: error },
      },
    },
    requests: { inspection: stubInspection(1), requests: [summary] },
    others: {
      '/page/doctor': { findings: [finding] },
      '/page/suggestions': { ports: [8001], ending: HOSTILE, hasOwnSite: false },
      '/page/policy': { policy: null, text: HOSTILE, problems: [{ line: 1, column: 1, message: HOSTILE }] },
      '/messages': [{ ...message, text: HOSTILE, base64: null, event: HOSTILE, error: HOSTILE }],
      '/requests/1': detail,
      '/replay': refusal,
      [HOSTILE_URL]: (_path, _body, method) =>
        method === 'GET' ? { policy: JSON.stringify({ on_http_request: [{ name: HOSTILE }] }) } : refusal,
      '': refusal,
    },
  };
}
