import { decodeJwt } from 'jose';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createSignIn } from '../../../src/gateway/sign-in/create-sign-in.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PublicRequest } from '../../../src/traffic-policy/fetch-document.ts';
import {
  type BegunSignIn,
  type PolicyPorts,
  type PolicyTrouble,
  SEALING_MS,
  type SignInEnd,
  type SignInPort,
} from '../../../src/traffic-policy/ports.ts';
import { PolicyState } from '../../../src/traffic-policy/state/policy-state.ts';
import { ProcessorTime } from '../../../src/traffic-policy/state/processor-time.ts';
import { exchange } from '../../support/https-exchange.ts';
import { CLIENT, TestIdentityProvider } from '../../support/identity-provider.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { type Page, WebClient } from '../../support/web-client.ts';
import { connectionFrom, requestFor, TLS_WITHOUT_CERTIFICATES } from '../fake-request.ts';
import { RecordedTime } from '../recorded-time.ts';
import { askPolicy, documentedConfig } from './ask-policy.ts';

const CAM = 'https://cam.example.com';
const DOOR = 'https://door.example.com';

let idp: TestIdentityProvider;
beforeAll(async () => {
  idp = await TestIdentityProvider.start([CAM, DOOR].map((origin) => `${origin}/ngrok/oidc/callback`));
});
afterAll(() => idp.close());

interface World {
  /** Configurations of the action, by origin. */
  endpoints: Record<string, object>;
  /** What the endpoints answer with. */
  report: string;
  troubles: PolicyTrouble[];
  /** Attempts that have ended. */
  ended: SignInEnd[];
  ports: Partial<PolicyPorts>;
  /** Milliseconds that have passed for the endpoints. */
  passed: number;
  endedBefore: SignInPort['endedBefore'];
  /** What was written down of sign-ins. */
  begun: BegunSignIn[];
  /** Whether it can be written down. */
  written: () => Promise<void>;
  /** Actions before this one. */
  before: object[];
  /** Rules after it. */
  after: object[];
  /** Expressions of the rule with the action. */
  expressions: string[];
  /** Headers of the last request that went on to the upstream. */
  forwarded: readonly string[];
}

const REPORT = ['email', 'name', 'provider_user_id']
  .map((name) => `actions.ngrok.oidc.identity.${name}`)
  .join(" + '|' + ");

/** Endpoints with the action, which answer with what it has recorded, and a browser that reaches them and the provider. */
function setUp(endpoints: Record<string, object> = { [CAM]: {}, [DOOR]: {} }) {
  const troubles: PolicyTrouble[] = [];
  const box = new SecretsBox(Buffer.alloc(32, 7));
  const world: World = {
    endpoints,
    report: REPORT,
    troubles,
    ended: [],
    ports: {},
    passed: 0,
    forwarded: [],
    endedBefore: () => 0,
    begun: [],
    written: async () => {},
    before: [],
    after: [],
    expressions: [],
  };
  const begin = (signIn: BegunSignIn) => ({ id: `as_${world.begun.push(signIn)}`, written: world.written() });
  const before: SignInPort['endedBefore'] = (...of) => world.endedBefore(...of);
  const wallClock = () => Date.now() + world.passed;
  world.ports = {
    signIn: createSignIn(
      { box, endedSignIns: { before }, begin, onEnd: (end) => world.ended.push(end) },
      idp.send,
      wallClock,
    )(''),
    wallClock,
    onTrouble: (trouble) => troubles.push(trouble),
  };
  const states = new Map<string, PolicyState>();
  const askFrom = (clientIp?: string) => async (url: string, request: PublicRequest) => {
    const { origin } = new URL(url);
    const config = endpoints[origin];
    if (config === undefined) return exchange(url, request);
    const state = states.get(origin) ?? new PolicyState();
    states.set(origin, state);
    const text = JSON.stringify({
      on_http_request: [
        {
          expressions: world.expressions,
          actions: [
            ...world.before,
            { type: 'openid-connect', config: { issuer_url: idp.issuer, ...CLIENT, ...config } },
          ],
        },
        ...world.after,
        { actions: [{ type: 'custom-response', config: { body: `\${${world.report}}` } }] },
      ],
    });
    const { forwarded, ...answer } = await askPolicy(text, { ...world.ports, state }, url, request, clientIp);
    world.forwarded = forwarded;
    return answer;
  };
  const another = (clientIp?: string) => new WebClient(askFrom(clientIp));
  return { world, browser: another(), another };
}

const codeOf = ({ headers }: Page) => headers['ngrok-error-code'];

/** Signs in at the provider, and stops before the browser returns. */
async function returning(browser: WebClient, start: string | Page, name = 'jo'): Promise<string> {
  const first = typeof start === 'string' ? await browser.visit(start) : start;
  const form = await browser.follow(first, '/ngrok/oidc/callback');
  if (form.url.includes('/ngrok/oidc/callback')) return form.url;
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const posted = await browser.visit(form.url, { method: 'POST', headers, body: `name=${name}` });
  return (await browser.follow(posted, '/ngrok/oidc/callback')).url;
}

async function signIn(browser: WebClient, url = `${CAM}/`, name = 'jo'): Promise<Page> {
  return browser.follow(await browser.visit(await returning(browser, url, name)));
}

describe('openid-connect', () => {
  it('signs people in at the provider, and brings them to the page that they asked for', async () => {
    const { browser, world } = setUp();
    const page = await signIn(browser, `${CAM}/live?quality=high`);
    expect(page).toMatchObject({ url: `${CAM}/live?quality=high`, status: 200, body: 'jo@example.com|JO|jo' });
    expect(world.forwarded.join()).not.toContain('ngrok-sign-in');
    expect(browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'))).toMatchObject([
      { name: expect.stringMatching(/^__Host-/), isHostOnly: true },
    ]);
    expect(world.troubles).toEqual([]);
  });

  it('names its own host to the provider, and returns to the path that was asked for, after url-rewrite', async () => {
    const { browser, world } = setUp();
    world.before = [{ type: 'url-rewrite', config: { from: '.*', to: 'https://bank.example/inner' } }];
    const first = await browser.visit(`${CAM}/live?quality=high`);
    const redirectUri = new URL(String(first.headers.location)).searchParams.get('redirect_uri');
    expect(redirectUri).toBe(`${CAM}/ngrok/oidc/callback`);
    const page = await browser.follow(await browser.visit(await returning(browser, first)));
    expect(page).toMatchObject({ url: `${CAM}/live?quality=high`, status: 200 });
    expect(world.begun).toMatchObject([{ publicUrl: CAM, host: 'cam.example.com' }]);
    expect(world.ended).toMatchObject([{ host: 'cam.example.com' }]);
  });

  it.each(['Google', 'Keycloak'])('does as docs/sign-in.md shows for %s, here at another provider', async (chapter) => {
    const config = documentedConfig(chapter, 'openid-connect');
    const { browser } = setUp({ [CAM]: { ...config, issuer_url: idp.issuer, ...CLIENT } });
    expect((await signIn(browser)).body).toBe('jo@example.com|JO|jo');
  });

  it('tells who has signed in, and what has failed', async () => {
    const { browser, another, world } = setUp();
    await another().visit(await returning(browser, `${CAM}/`));
    await signIn(browser);
    const common = { host: 'cam.example.com', issuer: idp.issuer, clientIp: expect.any(String) };
    expect(world.ended).toEqual([
      { ...common, subject: null, error: 'ERR_NGROK_3121' },
      { ...common, subject: 'jo', error: null },
    ]);
  });

  it.each([
    ['a script', { headers: { 'sec-fetch-mode': 'cors' } }],
    ['a form', { method: 'POST' }],
    ['a WebSocket', { headers: { 'sec-websocket-key': 'a' } }],
    ['an event stream', { headers: { accept: 'text/event-stream' } }],
    ['a program that asks for JSON', { headers: { accept: 'application/json, text/plain, */*' } }],
    ['a script of an old browser', { headers: { accept: '*/*', 'x-requested-with': 'XMLHttpRequest' } }],
  ])('answers %s with 401, which cannot follow to the provider', async (_, request) => {
    const page = await setUp().browser.visit(`${CAM}/`, request);
    expect([page.status, codeOf(page)]).toEqual([401, 'ERR_NGROK_3150']);
  });

  it('lets CORS preflights pass only with allow_cors_preflight', async () => {
    const headers = { origin: DOOR, 'access-control-request-method': 'PUT' };
    const { browser } = setUp({ [CAM]: { allow_cors_preflight: true }, [DOOR]: {} });
    expect((await browser.visit(`${DOOR}/`, { method: 'OPTIONS', headers })).status).toBe(401);
    await expect(browser.visit(`${CAM}/`, { method: 'OPTIONS', headers: { origin: DOOR } })).resolves.toMatchObject({
      status: 401,
    });
    // It goes on to the next rule, which has nothing to say of anybody.
    const passed = await browser.visit(`${CAM}/`, { method: 'OPTIONS', headers });
    expect(codeOf(passed)).toBe('ERR_NGROK_3900');
  });

  it('asks again after /ngrok/logout, and only then', async () => {
    const { browser } = setUp();
    await signIn(browser);
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    expect((await browser.visit(`${CAM}/ngrok/logout`)).body).toContain('signed out');
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it.each(['cross-site', 'same-site'])('asks first when a %s page leads to /ngrok/logout', async (site) => {
    const { browser } = setUp();
    await signIn(browser);
    const led = await browser.visit(`${CAM}/ngrok/logout?redirect_path=/b`, { headers: { 'sec-fetch-site': site } });
    expect(led.body).toContain('<form method="post"><button>Sign out</button>');
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    const headers = { 'sec-fetch-site': 'same-origin', origin: CAM };
    const signedOut = await browser.visit(`${CAM}/ngrok/logout?redirect_path=/b`, { method: 'POST', headers });
    expect(signedOut).toMatchObject({ status: 302, headers: { location: `${CAM}/b` } });
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it('begins no sign-in at /ngrok/login for an image of a page', async () => {
    const { browser } = setUp();
    const headers = { 'sec-fetch-mode': 'no-cors', 'sec-fetch-site': 'same-site' };
    const answer = await browser.visit(`${CAM}/ngrok/login`, { headers });
    expect(answer.status).toBe(401);
    expect(answer.headers['set-cookie'] ?? []).toEqual([]);
  });

  it('asks who somebody is at /ngrok/login, also when the provider knows', async () => {
    const { browser } = setUp();
    await signIn(browser);
    const begun = await browser.visit(`${CAM}/ngrok/login?redirect_path=/b`);
    expect((await browser.follow(begun)).url).toContain('/interaction/');
    expect((await signIn(browser, `${CAM}/ngrok/login?redirect_path=/b`)).url).toBe(`${CAM}/b`);
  });

  it('handles the paths of another auth_id like any other', async () => {
    const { browser } = setUp({ [CAM]: { auth_id: 'people' } });
    await signIn(browser);
    expect((await browser.visit(`${CAM}/ngrok/logout?auth_id=others`)).body).toContain('jo@');
    expect((await browser.visit(`${CAM}/ngrok/logout?auth_id=people`)).body).toContain('signed out');
  });

  it.each(['https://evil.example/', '//evil.example/', '/\\evil.example/', '@evil.example/', '.evil.example', 'x'])(
    'does not lead to another host by redirect_path=%s',
    async (path) => {
      const { browser } = setUp();
      const query = `?redirect_path=${encodeURIComponent(path)}`;
      const signedIn = await browser.visit(await returning(browser, `${CAM}/ngrok/login${query}`));
      expect(new URL(String(signedIn.headers.location)).origin).toBe(CAM);
      const signedOut = await browser.visit(`${CAM}/ngrok/logout${query}`);
      expect(new URL(String(signedOut.headers.location)).origin).toBe(CAM);
    },
  );

  it('signs people in for some paths, if the rule says so, and leaves the others alone', async () => {
    const { browser, world } = setUp();
    world.expressions = ["req.url.path.startsWith('/admin')"];
    expect(codeOf(await browser.visit(`${CAM}/`))).toBe('ERR_NGROK_3900');
    expect(await signIn(browser, `${CAM}/admin`)).toMatchObject({ url: `${CAM}/admin`, body: 'jo@example.com|JO|jo' });
    await browser.visit(`${CAM}/`);
    expect(world.forwarded.join()).not.toContain('ngrok-sign-in');
    expect((await browser.visit(`${CAM}/ngrok/logout`)).body).toContain('signed out');
  });

  it.each([
    ...['evil.example/.example.com', 'evil.example?.example.com', 'a@cam.example.com', ''],
    ...['cam.example.com:99999', 'cam.example.1'],
  ])('signs nobody in at the host %j, which is another one in a URL, or none', async (host) => {
    const { ports, troubles } = setUp().world;
    const action = { type: 'openid-connect', config: { issuer_url: idp.issuer, ...CLIENT } };
    const policy = compilePolicy(JSON.stringify({ on_http_request: [{ actions: [action] }] }), 'https', { ports });
    const connection = connectionFrom('203.0.113.7', { tls: TLS_WITHOUT_CERTIFICATES });
    expect(await policy.onHttpRequest?.(requestFor({ host, connection }))).toMatchObject({ status: 500 });
    expect(troubles).toMatchObject([{ message: 'the request has no usable host' }]);
  });

  it('signs in from two tabs at once, each to its page', async () => {
    const { browser } = setUp();
    const [first, second] = [await browser.visit(`${CAM}/a`), await browser.visit(`${CAM}/b`)];
    expect((await browser.visit(await returning(browser, second))).headers.location).toBe(`${CAM}/b`);
    expect((await browser.visit(await returning(browser, first))).headers.location).toBe(`${CAM}/a`);
  });

  it('keeps ten sign-ins that have begun, however many tabs begin one', async () => {
    const { browser } = setUp();
    for (let tab = 0; tab < 13; tab++) await browser.visit(`${CAM}/${tab}`);
    expect(browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in')).length).toBe(10);
  });

  it('keeps as many sign-ins to long paths as fit into the headers of a request', async () => {
    const { browser } = setUp();
    for (let tab = 0; tab < 13; tab++) await browser.visit(`${CAM}/${tab}?left=${'x'.repeat(2_000)}`);
    const kept = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    expect(kept.length).toBeGreaterThan(2);
    expect(kept.map(({ name, value }) => name.length + value.length).reduce((sum, each) => sum + each)).toBeLessThan(
      20_000,
    );
    for (const { name, value } of kept) expect(name.length + value.length).toBeLessThan(4_000);
  });

  it('brings people to a path of 2,048 characters, and asks them to open a longer one again', async () => {
    const { browser } = setUp();
    const path = (length: number) => `/explore?left=${'x'.repeat(length)}`.slice(0, length);
    const page = await signIn(browser, CAM + path(2_048));
    expect(page).toMatchObject({ url: CAM + path(2_048), status: 200, body: 'jo@example.com|JO|jo' });
    await browser.visit(`${CAM}/ngrok/logout`);
    const notice = await browser.visit(await returning(browser, CAM + path(2_049)));
    expect(notice.status).toBe(200);
    expect(notice.body).toContain('more than 2,048 characters');
    expect((await browser.visit(CAM + path(2_049))).body).toBe('jo@example.com|JO|jo');
  });

  it('answers a client that sends thousands of its cookies briefly', async () => {
    const { browser, another } = setUp();
    await browser.visit(`${CAM}/`);
    const name = browser.cookies[0]?.name.slice(0, -8);
    const cookie = Array.from({ length: 2000 }, (_, at) => `${name}${at}=a`).join('; ');
    const page = await another().visit(`${CAM}/`, { headers: { cookie } });
    expect([page.headers['set-cookie']].flat().length).toBeLessThanOrEqual(11);
  });

  it('lets people decline', async () => {
    const { browser, world } = setUp();
    const page = await signIn(browser, `${CAM}/`, '');
    expect([page.status, codeOf(page)]).toEqual([403, 'ERR_NGROK_3114']);
    expect(world.troubles).toEqual([]);
  });

  it('leaves out an email that the provider has not verified', async () => {
    expect((await signIn(setUp().browser, `${CAM}/`, 'mallory')).body).toBe('|MALLORY|mallory');
  });
});

describe('deny after openid-connect', () => {
  const deny = (config?: object) => [
    {
      expressions: ["!actions.ngrok.oidc.identity.email.startsWith('ann')"],
      actions: [{ type: 'deny', ...(config && { config }) }],
    },
  ];

  it.each([undefined, { status_code: 403 }])(
    'tells a person so, and lets in who signs in as somebody else (%j)',
    async (config) => {
      const { world, browser, another } = setUp({ [CAM]: { auth_id: 'people' } });
      world.after = deny(config);
      const page = await signIn(browser, `${CAM}/live?a=b`);
      expect([page.status, codeOf(page)]).toEqual([403, 'ERR_GATEWAY_NOT_ADMITTED']);
      expect(page.body).toContain('jo@example.com may not open this page');
      const login = CAM + page.headers.link;
      expect((await browser.visit(login)).headers.location).toMatch(/^https:.*[?&]prompt=login&/);
      const other = another();
      const returned = await other.follow(await other.visit(await returning(other, login, 'ann')));
      expect(returned).toMatchObject({ url: `${CAM}/live?a=b`, status: 200, body: 'ann@example.com|ANN|ann' });
    },
  );

  it.each<[string, object | undefined, Record<string, string>]>([
    ['with another status', { status_code: 404 }, {}],
    ['to a script', undefined, { 'sec-fetch-mode': 'cors' }],
  ])('has no body %s', async (_, config, headers) => {
    const { world, browser } = setUp();
    await signIn(browser);
    world.after = deny(config);
    const page = await browser.visit(`${CAM}/`, { headers });
    expect(page).toMatchObject({ status: config ? 404 : 403, body: '' });
    expect(codeOf(page)).toBeUndefined();
  });

  it('has no body for somebody who has not signed in', async () => {
    const { world, browser } = setUp();
    world.expressions = ["req.url.path.startsWith('/private')"];
    world.after = [{ actions: [{ type: 'deny' }] }];
    const page = await browser.visit(`${CAM}/`);
    expect([page.status, page.body, codeOf(page)]).toEqual([403, '', undefined]);
  });
});

describe('what returns from the provider is rejected', () => {
  const changed = (url: string, change: (parameters: URLSearchParams) => void): string => {
    const parsed = new URL(url);
    change(parsed.searchParams);
    return parsed.href;
  };

  it.each<[string, (parameters: URLSearchParams) => void, number, string]>([
    ['without a state', (each) => each.delete('state'), 400, '3120'],
    ['with a state of nobody', (each) => each.set('state', 'a.b'), 400, '3121'],
    ['of another provider (mix-up)', (each) => each.set('iss', 'https://evil.example'), 403, '5204'],
    ['without its issuer, which the provider promises', (each) => each.delete('iss'), 403, '5204'],
    ['with a code of nobody', (each) => each.set('code', 'nope'), 400, '3122'],
    ['with an error of anyone', (each) => each.set('error', '<script>'), 403, '3112'],
  ])('%s', async (_, change, status, code) => {
    const { browser } = setUp();
    const page = await browser.visit(changed(await returning(browser, `${CAM}/`), change));
    expect([page.status, codeOf(page)]).toEqual([status, `ERR_NGROK_${code}`]);
    expect(page.body).not.toContain('<');
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it('when its token has another nonce', async () => {
    const { browser } = setUp();
    const begun = await browser.visit(`${CAM}/`);
    const location = changed(String(begun.headers.location), (each) => each.set('nonce', 'another'));
    const page = await browser.visit(await returning(browser, { ...begun, headers: { location } }));
    expect([page.status, codeOf(page)]).toEqual([403, 'ERR_NGROK_5204']);
  });

  it('a second time, here and at another gateway', async () => {
    const { browser, world } = setUp();
    const link = await returning(browser, `${CAM}/`);
    const { cookies } = browser;
    expect((await browser.visit(link)).status).toBe(302);
    browser.cookies = cookies;
    expect(codeOf(await browser.visit(link))).toBe('ERR_NGROK_3123');
    world.ports = { ...world.ports, state: new PolicyState() };
    const elsewhere = setUp();
    elsewhere.browser.cookies = cookies;
    expect(codeOf(await elsewhere.browser.visit(link))).toBe('ERR_NGROK_3122');
  });

  it('by another browser than the one that has begun', async () => {
    const { browser, another } = setUp();
    expect(codeOf(await another().visit(await returning(browser, `${CAM}/`)))).toBe('ERR_NGROK_3121');
  });

  it('after a quarter of an hour', async () => {
    const { browser, world } = setUp();
    const link = await returning(browser, `${CAM}/`);
    world.passed += 15 * 60_000 + 1;
    expect(codeOf(await browser.visit(link))).toBe('ERR_NGROK_3119');
  });
});

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe('a client network that sends what it has made up', () => {
  const [STRANGER, OTHER] = ['192.0.2.66', '198.51.100.9'];

  /** Processor time that does not flow back, most of which the stranger has taken. */
  function limited() {
    const { world, another } = setUp();
    const processorTime = new ProcessorTime(0.25, new SteeredClock());
    processorTime.shareOf({ clientIp: STRANGER }).spend(990);
    world.ports = { ...world.ports, processorTime };
    return { stranger: another(STRANGER), other: another(OTHER) };
  }

  /** The cookies of a sign-in that has begun; its state is not used. */
  async function begun(browser: WebClient) {
    const { headers } = await browser.visit(`${CAM}/`);
    const [cookie] = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    if (cookie === undefined) throw new Error('no sign-in has begun');
    return { cookie, state: new URL(String(headers.location)).searchParams.get('state') ?? '' };
  }

  it.each<[string, string, (value: string) => string]>([
    ['no cookie', '', () => ''],
    ['a cookie of another form', '', () => 'made-up'],
    ['a cookie with a part less', '', (value) => value.replace(/\.[^.]*$/, '')],
    [
      'a cookie of a key that is too old',
      '',
      (value) => value.replace(/^[^.]*/, value.slice(0, 48).padEnd(52, 'MSJ9')),
    ],
    ['a state of another form', 'x', (value) => value],
    ['a state of nobody', 'a.b', (value) => value],
  ])('is told so before anything is opened: %s', async (_, more, change) => {
    const { world, another } = setUp();
    const browser = another(STRANGER);
    const { cookie, state } = await begun(browser);
    const processorTime = new RecordedTime();
    world.ports = { ...world.ports, processorTime };
    browser.cookies = [{ ...cookie, value: change(cookie.value) }];
    const page = await browser.visit(
      `${CAM}/ngrok/oidc/callback?code=1&state=${more.includes('.') ? more : state + more}`,
    );
    expect([codeOf(page), processorTime.spentMs]).toEqual(['ERR_NGROK_3121', 0]);
  });

  it('keeps nobody else out with cookies of the right form', async () => {
    const { stranger, other } = limited();
    await stranger.visit(`${CAM}/`);
    const [cookie] = stranger.cookies;
    if (cookie === undefined) throw new Error('no sign-in has begun');
    const name = cookie.name.replace(/-[^-]*$/, '');
    let refused: Page | null = null;
    for (let at = 0; refused === null && at < 500; at++) {
      const tag = String(at).padStart(22, 'A');
      stranger.cookies = [{ ...cookie, name, value: `1.${cookie.value.replace(/[^.]*$/, tag)}` }];
      const page = await stranger.visit(`${CAM}/`, { headers: { accept: 'application/json' } });
      if (page.status !== 401) refused = page;
    }
    expect([refused?.status, refused && codeOf(refused)]).toEqual([503, 'ERR_NGROK_5001']);
    expect((await signIn(other)).body).toBe('jo@example.com|JO|jo');
  });

  it('keeps nobody else out with codes, here or at another endpoint of the tenant', async () => {
    const { stranger, other } = limited();
    let refused: Page | null = null;
    for (let at = 0; refused === null && at < 20; at++) {
      stranger.cookies = [];
      const start = await stranger.visit(`${CAM}/`);
      const state = new URL(String(start.headers.location ?? CAM)).searchParams.get('state');
      const page = await stranger.visit(`${CAM}/ngrok/oidc/callback?code=made-up&state=${state}&iss=${idp.issuer}`);
      if (page.status === 503) refused = page;
    }
    expect(refused && codeOf(refused)).toBe('ERR_NGROK_5001');
    expect((await signIn(other)).body).toBe('jo@example.com|JO|jo');
    expect((await signIn(other, `${DOOR}/`)).body).toBe('jo@example.com|JO|jo');
  });
});

describe('a session of openid-connect', () => {
  it.each([
    ['another tunnel of the same site', DOOR, {}],
    ['another client', CAM, { client_id: 'doors' }],
    ['another owner, who does not know the secret', CAM, { client_secret: 'a guess' }],
    ['another auth_id', CAM, { auth_id: 'others' }],
    ['a shared domain', CAM, { auth_cookie_domain: 'example.com' }],
  ])('does not count for %s', async (_, origin, config) => {
    const { browser, world, another } = setUp();
    await signIn(browser);
    const [session] = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    world.endpoints[origin] = config;
    const thief = another();
    await thief.visit(`${origin}/`);
    const tag = thief.cookies[0]?.name.replace(/-[^-]*$/, '').slice('__Host-'.length);
    const cookie = ['__Host-', '__Secure-'].map((prefix) => `${prefix}${tag}=${session?.value}`).join('; ');
    expect((await another().visit(`${origin}/`, { headers: { cookie } })).status).toBe(302);
  });

  it('counts at all hosts of auth_cookie_domain, which must be above them', async () => {
    const shared = { auth_cookie_domain: 'example.com' };
    const { browser, world } = setUp({ [CAM]: shared, [DOOR]: shared });
    await signIn(browser);
    expect((await browser.visit(`${DOOR}/`)).body).toBe('jo@example.com|JO|jo');
    world.endpoints[DOOR] = { auth_cookie_domain: 'cam.example.com' };
    expect((await browser.visit(`${DOOR}/`)).status).toBe(500);
    expect(world.troubles).toMatchObject([{ message: expect.stringContaining('neither door.example.com nor') }]);
  });

  it('ends when it is not used, and lasts while it is', async () => {
    const { browser, world } = setUp({ [CAM]: { idle_session_duration: '1h' } });
    await signIn(browser);
    for (let times = 0; times < 3; times++) {
      world.passed += 50 * MINUTE;
      expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    }
    world.passed += 61 * MINUTE;
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it('ends at its maximum duration, however much it is used', async () => {
    const { browser, world } = setUp({ [CAM]: { max_session_duration: '2h' } });
    await signIn(browser);
    world.passed += 119 * MINUTE;
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    world.passed += 2 * MINUTE;
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it('can be ended for everyone at a host, also with a dot at the end, and for a person', async () => {
    const { browser, world, another } = setUp();
    await signIn(browser);
    const asked: unknown[] = [];
    const end = Date.now() + MINUTE / 2;
    world.endedBefore = (...of) => {
      asked.push(of);
      return end;
    };
    world.passed += MINUTE;
    world.endpoints[`${CAM}.`] = {};
    const cookie = browser.cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
    expect((await another().visit(`${CAM}./`, { headers: { cookie } })).status).toBe(302);
    expect(asked).toEqual(Array(2).fill(['cam.example.com', idp.issuer, 'jo', 'as_1']));
    expect((await signIn(browser)).status).toBe(200);
  });

  it('is written down when it begins, and only then', async () => {
    const { browser, world } = setUp({ [CAM]: { max_session_duration: '2h', userinfo_refresh_interval: '1h' } });
    world.report = 'actions.ngrok.oidc.identity.current_session_id';
    expect((await signIn(browser)).body).toBe('as_1');
    expect(world.begun).toMatchObject([
      {
        issuer: idp.issuer,
        person: { subject: 'jo', email: 'jo@example.com', name: 'JO' },
        publicUrl: CAM,
        host: 'cam.example.com',
        clientIp: '203.0.113.7',
      },
    ]);
    expect(Math.abs((world.begun[0]?.expiresAt ?? 0) - Date.now() - 2 * HOUR)).toBeLessThan(MINUTE);
    world.passed += 90 * MINUTE;
    await browser.visit(`${CAM}/`);
    expect(world.begun).toHaveLength(1);
  });

  it('begins, and the operator learns of it, when it cannot be written down', async () => {
    const { browser, world } = setUp();
    world.written = () => Promise.reject(new Error('the disk is full'));
    expect((await signIn(browser)).status).toBe(200);
    expect(world.troubles).toMatchObject([{ message: expect.stringContaining('the disk is full') }]);
  });

  it('is read with the key that has sealed it, and sealed again with the next one', async () => {
    const { browser, world } = setUp({ [CAM]: { max_session_duration: '1440h', idle_session_duration: '1440h' } });
    await signIn(browser);
    const [before] = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    world.passed += 59 * DAY;
    const now = await browser.visit(`${CAM}/`);
    expect(now.status).toBe(200);
    const [after] = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    // The number of the key follows the number of parts.
    const keys = [before, after].map((cookie) => cookie?.value.split('.')[1]);
    expect(keys[0]).not.toBe(keys[1]);
  });

  it('is not read when anything of it was changed', async () => {
    const { browser, world } = setUp();
    await signIn(browser);
    const [session] = browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
    const { value = '' } = session ?? {};
    const pieces = ['', '1.', '1.zzzz.', '9.', value.slice(0, -1), `${value}A`, value.replace(/.{9}$/, 'AAAAAAAAA')];
    const processorTime = new RecordedTime();
    world.ports = { ...world.ports, processorTime };
    for (const changed of pieces) {
      browser.cookies = session ? [{ ...session, value: changed }] : [];
      expect((await browser.visit(`${CAM}/`)).status).toBe(302);
    }
    // Clients can send any number of them. Only one is opened: the others do not have the form. An attempt to sign in is sealed.
    expect(processorTime.spentMs).toBeCloseTo((1 + pieces.length) * SEALING_MS);
  });

  it.each([-2, 2])('begins at a provider whose clock is %i minutes off', async (minutes) => {
    const { browser, world } = setUp();
    idp.onSend = () => {
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + minutes * MINUTE });
    };
    idp.onAnswer = () => void vi.useRealTimers();
    onTestFinished(() => {
      idp.onSend = idp.onAnswer = () => {};
    });
    expect((await signIn(browser)).status).toBe(200);
    expect(world.troubles).toEqual([]);
  });

  it('keeps people in while the provider is down, and keeps others out with an error', async () => {
    const { browser, world, another } = setUp({ [CAM]: { userinfo_refresh_interval: '1h' } });
    await signIn(browser);
    const link = await returning(another(), `${CAM}/`);
    idp.isUp = false;
    onTestFinished(() => {
      idp.isUp = true;
    });
    world.passed += 2 * HOUR;
    expect((await browser.visit(`${CAM}/`)).body).toBe('jo@example.com|JO|jo');
    expect(codeOf(await another().visit(link))).toBe('ERR_NGROK_3121');
    // Some providers answer so about people whom they no longer have: not for ever.
    world.passed += 22 * HOUR;
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    world.passed += 2 * HOUR;
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
    const strange = setUp();
    const page = await strange.browser.visit(`${CAM}/`);
    expect([page.status, codeOf(page)]).toEqual([502, 'ERR_NGROK_5208']);
    expect(world.troubles.map(({ message }) => message).join()).toContain('connection refused');
  });

  it('learns of the provider again whether somebody may still come', async () => {
    const { browser, world } = setUp({ [CAM]: { userinfo_refresh_interval: '1h' } });
    await signIn(browser, `${CAM}/`, 'kim');
    idp.asked.length = 0;
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    expect(idp.asked).toEqual([]);
    world.passed += 2 * HOUR;
    // All have the same refresh token, whose second use the provider takes for a theft.
    const pages = await Promise.all([1, 2, 3].map(() => browser.visit(`${CAM}/`)));
    expect(pages.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(idp.asked.filter((path) => path === '/token')).toHaveLength(1);
    world.passed += 2 * HOUR;
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
    idp.removed.add('kim');
    world.passed += 2 * HOUR;
    expect((await browser.visit(`${CAM}/`)).status).toBe(302);
  });

  it('needs HTTPS', async () => {
    const text = JSON.stringify({
      on_http_request: [{ actions: [{ type: 'oidc', config: { issuer_url: idp.issuer, ...CLIENT } }] }],
    });
    const outcome = await compilePolicy(text, 'http').onHttpRequest?.(requestFor());
    expect(outcome).toMatchObject({ kind: 'error', status: 403, message: expect.stringContaining('https://') });
  });

  it('keeps the tokens that later rules read, however long they are', async () => {
    const config = { scopes: ['profile', 'email', 'offline_access'] };
    const { browser, world } = setUp({ [CAM]: config });
    world.report = "actions.ngrok.oidc.identity_token + ' ' + actions.ngrok.oidc.access_token";
    const [identity, access] = (await signIn(browser, `${CAM}/`, `jo${'o'.repeat(2000)}`)).body.split(' ');
    expect(decodeJwt(identity ?? '').iss).toBe(idp.issuer);
    expect(access).toMatch(/^[\w-]{40,}$/);
    expect(browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in')).length).toBeGreaterThan(1);
    await browser.visit(`${CAM}/ngrok/logout`);
    expect(browser.cookies.filter(({ name }) => name.includes('ngrok-sign-in'))).toEqual([]);
  });
});
