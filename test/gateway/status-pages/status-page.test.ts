import { gunzipSync } from 'node:zlib';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { EndpointPolicies } from '../../../src/gateway/endpoints/endpoint-policies.ts';
import type { LiveEndpoint } from '../../../src/gateway/endpoints/live-view.ts';
import { ENDINGS } from '../../../src/gateway/endpoints/traffic-counts.ts';
import type { HistoryRange, HistoryStep, SubjectName } from '../../../src/gateway/history/history-points.ts';
import { Values } from '../../../src/gateway/history/history-values.ts';
import { type StatusSources, statusPages } from '../../../src/gateway/status-pages/status-page.ts';
import { statusPageIn, statusPagePolicy } from '../../../src/management/status-page-policy.ts';
import type { StatusFile } from '../../../src/traffic-policy/ports.ts';
import { startTestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { exchange } from '../../support/https-exchange.ts';
import { liveOf } from '../../support/nothing-online.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

const DAY = 1_440;
const NOW = Date.parse('2026-11-30T12:34:56Z');
const TODAY = NOW / 60_000 - ((NOW / 60_000) % DAY);
const CAM = 'https://cam.example.com';

let clock: SteeredClock;
let online: Set<string>;
let missing: string[];
let reads: number;
/** What the history has of the camera, by the minute when the step begins. */
let steps: Map<number, HistoryStep>;
let sources: StatusSources | null;

beforeEach(() => {
  clock = new SteeredClock();
  [online, missing, reads, steps] = [new Set([CAM]), [], 0, new Map()];
  const read = async ({ key }: SubjectName, { from, to, step }: HistoryRange) => {
    reads += 1;
    const all: HistoryStep[] = [];
    for (let at = from; at < to; at += step)
      all.push((key === CAM && steps.get(at)) || { ...NOTHING, at, known: 0, online: 0, values: new Values() });
    return { steps: all, longestOutage: null };
  };
  sources = {
    live: {
      ...liveOf({ endpoints: () => [...online].map(endpointAt) }),
      askElsewhere: async () => ({ counted: [], missing }),
    },
    history: { read },
    ports: { http: 80, https: 443 },
    since: clock.now() - 3_600_000,
  };
});

function endpointAt(url: string): LiveEndpoint {
  return { url, host: new URL(url).hostname, proto: 'https', internal: false } as LiveEndpoint;
}

/** What only devices say. */
const NOTHING = { away: 0, machine: null };

function day(ago: number, share: number, endings: Partial<Record<(typeof ENDINGS)[number], number>> = {}): void {
  const at = TODAY - ago * DAY;
  steps.set(at, { ...NOTHING, at, known: 86_400, online: 86_400 * share, values: valuesOf(endings) });
}

function valuesOf(endings: Partial<Record<(typeof ENDINGS)[number], number>>): Values {
  const values = new Values();
  for (const [ending, count] of Object.entries(endings)) values.ended[ENDINGS.indexOf(ending as never)] = count;
  return values;
}

const pageOf = (endpoints = [{ url: CAM, title: 'Camera' }]) =>
  statusPages(
    clock,
    () => sources,
    () => NOW,
  )('ep_1')?.({ title: 'Quarry', text: 'Of <us>', endpoints }) ?? never();
const never = (): never => {
  throw new Error('there is a page');
};
const textOf = ({ plain }: StatusFile) => plain.body.toString();
const stateIn = (html: string) => /<span class="state (\w+)"/.exec(html)?.[1];

it('says what clients get now and on 90 days, with what is not known, and no address', async () => {
  day(0, 1);
  day(1, 1, { s2xx: 80, failed: 20 });
  day(2, 0.25);
  day(3, 0.98765);
  const html = textOf(await pageOf()());
  expect(html).toContain('<h1>Quarry</h1>\n<p>Of &#60;us&#62;</p>');
  expect(html).toContain('<strong>It is available.</strong>');
  expect(html).toContain('2026-11-30 12:34 UTC');
  expect(html).toContain('aria-label="The last 90 days: 80.94 % available; nothing is known of 86 days"');
  expect(
    [...html.matchAll(/<path class="(\w+)" d="((?:M[^M"]+)+)"/g)].map(([, state, path]) => [
      state,
      path?.split('M').length,
    ]),
  ).toEqual([
    ['up', 2],
    ['failing', 3],
    ['down', 2],
    ['unknown', 87],
  ]);
  const rows = [...html.matchAll(/<th scope="row">(.*?)<\/th><td>(.*?)<\/td><td>(.*?)<\/td>/g)].map((row) =>
    row.slice(1),
  );
  expect(rows).toEqual([
    ['2026-11-29', '100 %', '20 % of requests failed'],
    ['2026-11-28', '25 %', ''],
    ['2026-11-27', '98.76 %', ''],
  ]);
  expect(html).not.toContain('cam.example.com');
  expect(html).not.toContain('<script');
});

describe('an endpoint', () => {
  const now = async () => stateIn(textOf(await pageOf()()));

  it('is available while it is online, and unavailable when it is not', async () => {
    day(0, 1);
    const before = await now();
    online.clear();
    expect([before, await now()]).toEqual(['up', 'down']);
  });

  it.each([
    [{ s2xx: 2, s5xx: 2 }, 'up'],
    [{ s2xx: 95, s4xx: 5, s5xx: 4 }, 'up'],
    [{ s2xx: 8, failed: 2 }, 'failing'],
    [{ failed: 3 }, 'down'],
    [{ s2xx: 1, s5xx: 30 }, 'down'],
    [{ refused: 30 }, 'up'],
  ])('whose clients got %o within five minutes is %s', async (endings, state) => {
    const at = Math.floor(NOW / 60_000) - 3;
    steps.set(at, { ...NOTHING, at, known: 60, online: 60, values: valuesOf(endings) });
    expect(await now()).toBe(state);
  });

  it('that the gateway does not reach as clients do is down', async () => {
    sources = sources && { ...sources, isUnreached: (url) => url === CAM };
    expect(await now()).toBe('down');
  });

  it('is not known when nobody has seen it, a gateway does not answer, or the gateway has just started', async () => {
    online.clear();
    const unseen = await now();
    day(5, 1);
    missing = ['192.0.2.7:443'];
    const unanswered = await now();
    missing = [];
    const seen = await now();
    if (sources) sources = { ...sources, since: clock.now() - 60_000 };
    const started = await now();
    sources = null;
    expect([unseen, unanswered, seen, started, await now()]).toEqual([
      'unknown',
      'unknown',
      'down',
      'unknown',
      'unknown',
    ]);
  });

  it('has no days without a history', async () => {
    if (sources) sources = { ...sources, history: null };
    const html = textOf(await pageOf()());
    expect([stateIn(html), html.includes('class="bar"'), html.includes('legend"')]).toEqual(['up', false, false]);
  });
});

it('is made once for all readers, again after half a minute while they read the one before, and waited for when that is old', async () => {
  day(0, 1);
  const page = pageOf();
  const first = await Promise.all([page(), page(), page()]);
  expect([new Set(first).size, reads]).toEqual([1, 2]);
  clock.skip(29_000);
  expect(page()).toBe(first[0]);
  clock.skip(2_000);
  online.clear();
  expect(page()).toBe(first[0]);
  await clock.advance(0);
  await expect.poll(() => page()).not.toBe(first[0]);
  expect(stateIn(textOf(page() as StatusFile))).toBe('down');
  // The days are read every five minutes.
  expect(reads).toBe(2);
  clock.skip(301_000);
  expect(page()).toBeInstanceOf(Promise);
  await page();
  expect(reads).toBe(3);
});

it('is refused in the policies of agents, which would learn of endpoints of others', async () => {
  const policies = new EndpointPolicies({
    ipPolicies: () => null,
    statusPage: statusPages(clock, () => sources),
    log: silentLog,
  });
  const config = { title: 'Quarry', endpoints: [{ url: CAM, title: 'Camera' }] };
  const text = JSON.stringify({ on_http_request: [{ actions: [{ type: 'gateway-status-page', config }] }] });
  const target = {
    protocol: 'https',
    url: 'https://a.example.com',
    internal: false,
    frame: { before: {}, after: {} },
  } as const;
  const compile = (payer: string) => policies.compile(text, { ...target, payer });
  await compile('ep_1');
  await expect(compile('cr_1')).rejects.toThrow(/only cloud endpoints have status pages/);
});

it('a cloud endpoint answers with it: compressed, cached, and with its tag', async () => {
  const gateway = await startTestGateway({ historyDays: 395 });
  onTestFinished(() => gateway.close());
  const api = await GatewayClient.of(gateway);
  const port = gateway.httpsPort;
  const [url, up] = [`https://status.localhost`, 'https://up.localhost'];
  const create = (of: string, action: object) =>
    api.call('POST', '/endpoints', {
      ...{ type: 'cloud', url: of, bindings: ['public'] },
      traffic_policy: JSON.stringify({ on_http_request: [{ actions: [action] }] }),
    });
  await create(up, { type: 'custom-response', config: { body: 'hello' } });
  const endpoints = [
    { url: `${up}/`, title: 'Hello' },
    { url: 'https://gone.localhost', title: 'Gone' },
  ];
  const config = { title: 'Quarry', endpoints };
  expect((await create(url, { type: 'gateway-status-page', config })).status).toBe(201);
  const ask = (headers: Record<string, string> = {}, method = 'GET') =>
    exchange(`${url}:${port}/`, { headers, method });
  const plain = await ask();
  expect([...plain.body.toString().matchAll(/<span class="state (\w+)"/g)].map(([, state]) => state)).toEqual([
    'up',
    'unknown',
  ]);
  expect(plain.headers).toMatchObject({
    'content-type': 'text/html; charset=utf-8',
    'cache-control': 'public, max-age=30',
    'content-security-policy': expect.stringMatching(/^default-src 'none'; style-src 'sha256-/),
    vary: 'accept-encoding',
  });
  const zipped = await ask({ 'accept-encoding': 'br, gzip' });
  expect(zipped.headers['content-encoding']).toBe('gzip');
  expect(gunzipSync(zipped.body)).toEqual(plain.body);
  expect((await ask({ 'accept-encoding': 'gzip;q=0' })).headers['content-encoding']).toBeUndefined();
  const { etag } = plain.headers;
  const known = await ask({ 'if-none-match': String(etag) });
  expect([known.status, known.body.length, known.headers.etag]).toEqual([304, 0, etag]);
  expect((await ask({}, 'POST')).status).toBe(405);
  // Other rules may have let in only those who know a password.
  expect((await ask({ authorization: 'Basic YTpi' })).headers['cache-control']).toBe('private, max-age=30');
  const wrong = await create('https://b.localhost', {
    type: 'gateway-status-page',
    config: { ...config, endpoints: [{ url: 'cam', title: 'x' }] },
  });
  expect(String(wrong.body.msg)).toMatch(/endpoints\[0\]\.url: must be the URL of an endpoint/);
});

it('a policy with more than a status page is no plain one, whose form would drop the rest', () => {
  const page = { title: 'Quarry', endpoints: [{ url: CAM, title: 'Camera' }] };
  const policy = JSON.parse(statusPagePolicy(page));
  const [rule] = policy.on_http_request;
  expect(statusPageIn(JSON.stringify(policy))).toEqual(page);
  for (const more of [
    { ...policy, on_tcp_connect: [{ actions: [{ type: 'deny' }] }] },
    { on_http_request: [{ ...rule, expressions: ["conn.client_ip == '192.0.2.1'"] }] },
    { on_http_request: [rule, rule] },
    { on_http_request: [{ actions: [...rule.actions, { type: 'log' }] }] },
  ])
    expect(statusPageIn(JSON.stringify(more))).toBeNull();
});
