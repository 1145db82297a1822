import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { createServer, request as sendRequest } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createSignIn } from '../../../src/gateway/sign-in/create-sign-in.ts';
import { addPerson, endSignIns, issuePersonLink } from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { createSignInPage } from '../../../src/gateway/sign-in/page/sign-in-page.ts';
import { Passwords, PasswordsBusy } from '../../../src/gateway/sign-in/passwords.ts';
import { PeopleProvider } from '../../../src/gateway/sign-in/people-provider.ts';
import { recordSignIns, signOut } from '../../../src/gateway/sign-in/recorded-sign-ins.ts';
import { openStore, type Store } from '../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import type { PublicRequest } from '../../../src/traffic-policy/fetch-document.ts';
import { PolicyState } from '../../../src/traffic-policy/state/policy-state.ts';
import { NO_ACTIVITY } from '../../support/edge-context.ts';
import { listening } from '../../support/loopback.ts';
import { silentLog } from '../../support/silent-log.ts';
import { sharedFolder } from '../../support/temporary-folder.ts';
import { type Page, WebClient } from '../../support/web-client.ts';
import { askPolicy, documentedConfig } from '../../traffic-policy/actions/ask-policy.ts';

const HOST = 'sign-in.example.com';
const SIGN_IN = `https://${HOST}`;
const CAM = 'https://cam.example.com';
const DOOR = 'https://door.customer.example';
const PASSWORD = 'correct horse battery';
const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** Configurations of the action, by origin. */
let endpoints: Record<string, object> = { [CAM]: {}, [DOOR]: {} };
/** Milliseconds that have passed for the gateway. */
let passed = 0;
let store: Store;
let people: PeopleProvider;
let port: number;
let added = 0;
const wallClock = () => Date.now() + passed;
const passwords = new Passwords({ log2N: 4, r: 1, p: 1 });
const server = createServer();
const folder = sharedFolder();

beforeAll(async () => {
  store = openStore(join(folder, 'gateway.db'), new SecretsBox(Buffer.alloc(32, 7)), wallClock);
  people = new PeopleProvider(store, HOST, wallClock);
  startPage();
  port = await listening(server);
});

/** The page of a gateway that has just started, or of another one with the same database. */
function startPage(): void {
  const isRefused = ({ remoteAddress = '' }) => remoteAddress === '127.0.0.99';
  server.removeAllListeners('request');
  server.on(
    'request',
    createSignInPage(
      { store, options: {}, activity: NO_ACTIVITY, log: silentLog },
      { people, isRefused, applications: () => [], passwords, wallClock },
    ),
  );
}

afterAll(() => {
  server.close();
  store.database.close();
});

/** Whose endpoints they are. */
let owner = '';
/** Actions of their policies before the sign-in. */
let before: object[] = [];
/** Whether their gateway has learned which sign-ins have ended at another one. */
let knowsEnds = true;

/** A browser at an address of its own, as attempts are limited for each. */
function browserAt(address = `127.1.${Math.floor(++added / 250)}.${added % 250}`): WebClient {
  const parts = {
    ...store,
    endedSignIns: {
      before: (...of: Parameters<Store['endedSignIns']['before']>) =>
        knowsEnds ? store.endedSignIns.before(...of) : 0,
    },
    people,
    begin: recordSignIns(store),
    signOut: (id: string) => signOut(store, id, silentLog),
  };
  const signInFor = createSignIn(parts, undefined, wallClock);
  const states = new Map<string, PolicyState>();
  return new WebClient(async (url, request) => {
    const { origin } = new URL(url);
    const config = endpoints[origin];
    if (config === undefined) return askPage(address, url, request);
    const state = states.get(origin) ?? new PolicyState();
    states.set(origin, state);
    const identity = 'actions.ngrok.gateway_sign_in.identity';
    const body = `\${${identity}.email}|\${${identity}.name}|\${${identity}.groups.join(',')}`;
    const actions = [...before, { type: 'gateway-sign-in', config }, { type: 'custom-response', config: { body } }];
    return askPolicy(
      JSON.stringify({ on_http_request: [{ actions }] }),
      { signIn: signInFor(owner), wallClock, state },
      url,
      request,
    );
  });
}

function askPage(localAddress: string, url: string, { method = 'GET', headers = {}, body }: PublicRequest = {}) {
  const { host, pathname, search } = new URL(url);
  return new Promise<{ status: number; headers: Page['headers']; body: Buffer }>((resolve, reject) => {
    const options = {
      port,
      localAddress,
      path: pathname + search,
      method,
      headers: { ...headers, host },
      agent: false,
    };
    sendRequest({ host: '127.0.0.1', ...options }, async (response) =>
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body: await buffer(response) }),
    )
      .on('error', reject)
      .end(body);
  });
}

/** Sends the form of a page; what the page has filled in stays. */
function send(browser: WebClient, page: Page, fields: Record<string, string> = {}, origin = SIGN_IN): Promise<Page> {
  const [, action = ''] = /<form method="post" action="([^"]+)"/.exec(page.body) ?? [];
  const filled = [...page.body.matchAll(/<input name="([^"]+)"[^>]* value="([^"]*)"/g)].map(([, name, value]) => [
    name,
    value,
  ]);
  const body = new URLSearchParams({ ...Object.fromEntries(filled), ...fields }).toString();
  const headers = { 'content-type': 'application/x-www-form-urlencoded', ...(origin !== '' && { origin }) };
  return browser.visit(new URL(action, page.url).href, { method: 'POST', headers, body });
}

/** A person with a password. */
async function person({ groups = ['family'], password = PASSWORD } = {}) {
  const password_hash = await passwords.hash(password);
  const email = `jo${++added}@example.com`;
  return store.database.write(() => {
    const row = { ...addPerson(store, { email, name: 'Jo', groups }), password_hash, password_set_at: store.now() };
    store.people.update(row);
    return row;
  });
}

/** Opens an endpoint and signs in, as far as its answer. */
async function open(browser: WebClient, email: string, url = `${CAM}/live?q=1`): Promise<Page> {
  const form = await browser.follow(await browser.visit(url));
  return browser.follow(await send(browser, form, { email, password: PASSWORD }));
}

const expire = (ms: number) => {
  passed += ms;
};

describe('gateway-sign-in', () => {
  it('signs people in at the page of the gateway, and brings them to the page that they asked for', async () => {
    const { email } = await person({ groups: ['family', 'staff'] });
    const browser = browserAt();
    const page = await open(browser, email);
    expect(page).toMatchObject({ url: `${CAM}/live?q=1`, status: 200, body: `${email}|Jo|family,staff` });
    expect(browser.cookies.map(({ name, domain, isHostOnly }) => [name.slice(0, 7), domain, isHostOnly])).toEqual([
      ['__Host-', HOST, true],
      ['__Host-', 'cam.example.com', true],
    ]);
  });

  it('lets those in whom the policy of docs/sign-in.md names', async () => {
    const [listed, family, other] = [await person({ groups: [] }), await person(), await person({ groups: ['staff'] })];
    const config = documentedConfig('People of this gateway', 'gateway-sign-in');
    const usual = endpoints;
    endpoints = { [CAM]: { ...config, people: [listed.email] } };
    onTestFinished(() => {
      endpoints = usual;
    });
    const statusOf = async ({ email }: { email: string }) => (await open(browserAt(), email)).status;
    expect(await Promise.all([listed, family, other].map(statusOf))).toEqual([200, 200, 403]);
    expect(Object.keys(config)).toEqual(['people', 'groups']);
  });

  it('tells a second endpoint who somebody is only after a click, and the next time without one', async () => {
    const { email } = await person();
    const browser = browserAt();
    await open(browser, email);
    const asked = await browser.follow(await browser.visit(`${DOOR}/a`));
    expect([new URL(asked.url).host, asked.body]).toEqual([HOST, expect.stringContaining('Continue to door.customer')]);
    const there = await browser.follow(await send(browser, asked));
    expect(there).toMatchObject({ url: `${DOOR}/a`, body: `${email}|Jo|family` });
    await browser.visit(`${DOOR}/ngrok/logout`);
    expect(await browser.follow(await browser.visit(`${DOOR}/b`))).toMatchObject({ url: `${DOOR}/b`, status: 200 });
  });

  it.each([
    ['url-rewrite', { from: 'https://[^/]*/(.*)', to: 'https://cam.trusted-bank.example/elsewhere/$1' }],
    ['add-headers', { headers: { host: 'cam.trusted-bank.example' } }],
  ])('leads to the host and path that the client has asked for, whatever %s makes of them', async (type, config) => {
    before = [{ type, config }];
    onTestFinished(() => {
      before = [];
    });
    const { email } = await person();
    const browser = browserAt();
    const form = await browser.follow(await browser.visit(`${CAM}/live?q=1`));
    expect(form.body).toContain('to continue to cam.example.com,');
    const there = await browser.follow(await send(browser, form, { email, password: PASSWORD }));
    expect(there).toMatchObject({ url: `${CAM}/live?q=1`, status: 200, body: `${email}|Jo|family` });
    const out = await browser.visit(`${CAM}/ngrok/logout?redirect_path=/bye`);
    expect(out).toMatchObject({ status: 302, headers: { location: `${CAM}/bye` } });
    expect(browser.cookies.map(({ domain }) => domain)).toEqual([HOST]);
    const again = await browser.visit(`${CAM}/ngrok/login`);
    expect((await browser.follow(again)).body).toContain('to continue to cam.example.com,');
  });

  it('does not tell the next owner of a host who has signed in there before', async () => {
    const { email } = await person();
    const browser = browserAt();
    await open(browser, email);
    expect(await browser.visit(CAM)).toMatchObject({ status: 200 });
    owner = 'bot_next';
    onTestFinished(() => {
      owner = '';
    });
    const asked = await browser.follow(await browser.visit(CAM));
    expect([new URL(asked.url).host, asked.body]).toEqual([HOST, expect.stringContaining('Continue to cam.')]);
  });

  it('lets two tabs sign in one after the other', async () => {
    const { email } = await person();
    const browser = browserAt();
    const [one, two] = [await browser.visit(`${CAM}/one`), await browser.visit(`${CAM}/two`)];
    const forms = [await browser.follow(one), await browser.follow(two)] as const;
    for (const [at, form] of forms.entries()) {
      const page = await browser.follow(await send(browser, form, { email, password: PASSWORD }));
      expect(page.url).toBe(`${CAM}/${['one', 'two'][at]}`);
    }
  });

  it.each([
    ['people', { people: ['OTHER@example.com'] }],
    ['groups', { groups: ['staff'] }],
    ['both', { people: ['other@example.com'], groups: ['staff'] }],
  ])('keeps people out whom its lists (%s) do not name, and offers to sign in as somebody else', async (_, lists) => {
    endpoints = { ...endpoints, 'https://office.example.com': lists };
    const { email } = await person();
    const browser = browserAt();
    const page = await open(browser, email, 'https://office.example.com/a');
    expect(page).toMatchObject({ status: 403, headers: { 'ngrok-error-code': 'ERR_GATEWAY_NOT_ADMITTED' } });
    const colleague = await person({ groups: ['staff'] });
    const form = await browser.follow(await browser.visit('https://office.example.com/ngrok/login?redirect_path=%2Fa'));
    expect(form.body).toContain('name="password"');
    const again = await browser.follow(await send(browser, form, { email: colleague.email, password: PASSWORD }));
    expect(again.status).toBe('groups' in lists ? 200 : 403);
  });

  it.each<[string, (id: string) => void, string]>([
    ['is removed', (id) => store.people.delete(id), 'name="password"'],
    ['is signed out', (id) => endSignIns(store, { issuer: people.issuer, subject: id }), 'name="password"'],
    [
      'leaves the group',
      (id) => {
        const row = store.people.get(id);
        if (row) store.people.update({ ...row, groups: [] });
      },
      'ask its owner',
    ],
  ])('ends access within a second when somebody %s', async (_, change, then) => {
    const host = 'https://family.example.com';
    endpoints = { ...endpoints, [host]: { groups: ['family'] } };
    const { id, email } = await person();
    const browser = browserAt();
    expect((await open(browser, email, `${host}/`)).status).toBe(200);
    await store.database.write(() => change(id));
    const body = async () => (await browser.follow(await browser.visit(`${host}/`))).body.toLowerCase();
    await expect.poll(body, { timeout: 2_000 }).toContain(then);
  });

  it('lets somebody stay in whose gateway learns only later which earlier sign-ins have ended', async () => {
    const { id, email } = await person();
    await store.database.write(() => endSignIns(store, { issuer: people.issuer, subject: id }));
    knowsEnds = false;
    const browser = browserAt();
    const answer = await open(browser, email).finally(() => {
      knowsEnds = true;
    });
    expect(answer.status).toBe(200);
    expect((await browser.visit(`${CAM}/`)).status).toBe(200);
  });

  it('asks for the password again when the sign-in is older than the policy allows, or two weeks', async () => {
    const host = 'https://strict.example.com';
    endpoints = { ...endpoints, [host]: { max_session_duration: '1h' } };
    const { email } = await person();
    const browser = browserAt();
    await open(browser, email, `${host}/`);
    expire(61 * MINUTE_MS);
    const form = await browser.follow(await browser.visit(`${host}/`));
    expect(form.body).toContain('name="password"');
    const around = { ...form, body: form.body.replace('action="/sign-in"', 'action="/continue"') };
    expect((await send(browser, around)).body).toContain('name="password"');
    expect((await browser.follow(await browser.visit(`${CAM}/`))).body).toContain('Continue to cam');
    expire(14 * DAY_MS);
    expect((await browser.follow(await browser.visit(`${CAM}/`))).body).toContain('name="password"');
  });

  it('ends the session of an endpoint with /ngrok/logout, and leads to the page that ends all', async () => {
    const { email } = await person();
    const browser = browserAt();
    await open(browser, email);
    const listed = () => store.applicationUsers.count('email = ?', [email]);
    await expect.poll(listed, { timeout: 2_000 }).toBe(1);
    const copies = [...browser.cookies];
    expect((await browser.visit(`${CAM}/ngrok/logout`)).body).toContain(`href="${SIGN_IN}/"`);
    await expect.poll(listed, { timeout: 2_000 }).toBe(0);
    browser.cookies = copies;
    await expect.poll(async () => (await browser.visit(`${CAM}/`)).status, { timeout: 2_000 }).toBe(302);
    await browser.follow(await browser.visit(`${CAM}/`));
    const out = await send(browser, await browser.visit(`${SIGN_IN}/`));
    expect(out.body).toContain('Signed out');
    expect((await browser.visit(`${SIGN_IN}/`)).body).toContain('name="password"');
    const asked = async () => (await browser.follow(await browser.visit(`${CAM}/`))).body;
    await expect.poll(asked, { timeout: 2_000 }).toContain('name="password"');
  });
});

describe('the page for sign-in', () => {
  it('answers a wrong password and an unknown person alike', async () => {
    const { email } = await person();
    const [known, unknown] = await Promise.all(
      [email, 'nobody@example.com'].map(async (who) => {
        const browser = browserAt();
        const form = await browser.visit(`${SIGN_IN}/`);
        return send(browser, form, { email: who, password: 'correct horse staple' });
      }),
    );
    expect([known?.status, unknown?.status]).toEqual([403, 403]);
    expect(known?.body).toContain('is wrong');
    // Each page has a challenge of its own.
    const told = (page?: Page) => page?.body.replace(/(?:data-options|value)="[^"]*"/g, '');
    expect(told(known)).toBe(told(unknown));
  });

  it('accepts no request that an endpoint has not made, or that is too old', async () => {
    const browser = browserAt();
    const { url } = await browser.follow(await browser.visit(`${CAM}/`));
    const sealed = new URL(url).searchParams.get('request') ?? '';
    expect((await browser.visit(`${SIGN_IN}/?request=${sealed.slice(0, -2)}AA`)).status).toBe(400);
    expect((await browser.visit(`${SIGN_IN}/?request=https://evil.example/`)).status).toBe(400);
    const form = await browser.visit(url);
    expire(16 * MINUTE_MS);
    expect(await browser.visit(url)).toMatchObject({ status: 400, body: expect.stringContaining('Start again') });
    expect((await send(browser, form, { email: 'a@b.c', password: PASSWORD })).status).toBe(400);
  });

  it.each<[string, (callback: string, browser: WebClient) => Promise<Page>]>([
    ['at another endpoint', (callback, browser) => browser.visit(callback.replace(CAM, DOOR))],
    ['in another browser', (callback) => browserAt().visit(callback)],
    [
      'in place of the code of another sign-in',
      async (callback, browser) => {
        const form = await browser.follow(await browser.visit(`${CAM}/ngrok/login`));
        const { email } = await person();
        const mine = await send(browser, form, { email, password: PASSWORD });
        const url = new URL(String(mine.headers.location));
        url.searchParams.set('code', new URL(callback).searchParams.get('code') ?? '');
        return browser.visit(url.href);
      },
    ],
    [
      'a second time',
      async (callback, browser) => {
        await browser.visit(callback);
        return browser.visit(callback);
      },
    ],
    [
      'later than in a minute',
      (callback, browser) => {
        expire(2 * MINUTE_MS);
        return browser.visit(callback);
      },
    ],
  ])('gives codes that sign nobody in %s', async (_, use) => {
    const { email } = await person();
    const browser = browserAt();
    const form = await browser.follow(await browser.visit(`${CAM}/`));
    const done = await send(browser, form, { email, password: PASSWORD });
    expect((await use(String(done.headers.location), browser)).status).toBe(400);
  });

  it.each(['https://cam.example.com', 'null', ''])('refuses forms that come from %j', async (origin) => {
    const { email } = await person();
    const browser = browserAt();
    const form = await browser.visit(`${SIGN_IN}/`);
    const page = await send(browser, form, { email, password: PASSWORD }, origin);
    expect([page.status, browser.cookies]).toEqual([403, []]);
  });

  it('refuses further guesses of a network, and at a person, but not where the person has signed in', async () => {
    const { email } = await person();
    const home = browserAt();
    const form = await home.visit(`${SIGN_IN}/`);
    await send(home, form, { email, password: PASSWORD });
    const guess = (browser: WebClient, who: string) => send(browser, form, { email: who, password: 'a wrong guess' });
    const thief = browserAt();
    for (let n = 0; n < 20; n++) expect((await guess(thief, email)).status).toBe(403);
    expect(await guess(thief, 'other@example.com')).toMatchObject({
      status: 429,
      headers: { 'retry-after': expect.stringMatching(/^\d+$/) },
    });
    expect((await guess(browserAt(), email)).status).toBe(429);
    expect((await send(home, form, { email, password: PASSWORD })).status).toBe(303);
  });

  it('knows after a restart, and at other gateways, where a person has signed in, and forgets it in the end', async () => {
    const { id, email } = await person();
    const home = browserAt();
    const form = await home.visit(`${SIGN_IN}/`);
    const rows = () => store.database.all<{ network: string }>('SELECT network FROM familiar_networks');
    const signIn = async (browser: WebClient) => (await send(browser, form, { email, password: PASSWORD })).status;
    const lockOut = async () => {
      startPage();
      const thief = browserAt();
      for (let n = 0; n < 20; n++) await send(thief, form, { email, password: 'a wrong guess' });
    };
    expect(await signIn(home)).toBe(303);
    await lockOut();
    expect([await signIn(browserAt()), await signIn(home)]).toEqual([429, 303]);
    expect(JSON.stringify(rows())).not.toContain('127.');
    // As when a link replaces the password.
    await store.database.write(() => store.familiarNetworks.forgetOf(id));
    expect(await signIn(home)).toBe(429);
    startPage();
    await signIn(home);
    expire(89 * DAY_MS);
    await lockOut();
    expect(await signIn(home)).toBe(303);
    expire(91 * DAY_MS);
    await lockOut();
    expect(await signIn(home)).toBe(429);
  });

  it('writes where a person signs in once a week, and keeps 20 networks of each', async () => {
    const [{ id }, other] = [await person(), await person()];
    const { familiarNetworks, database } = store;
    const commitsOf = async (work: () => Promise<void>) => {
      const before = database.commits;
      await work();
      return database.commits - before;
    };
    const remember = (network: string, personId = id) => commitsOf(() => familiarNetworks.remember(personId, network));
    expect([await remember('a'), await remember('a'), await remember('a', other.id)]).toEqual([1, 0, 1]);
    expire(6 * DAY_MS);
    expect(await remember('a')).toBe(0);
    expire(2 * DAY_MS);
    expect(await remember('a')).toBe(1);
    for (let n = 0; n < 20; n++) {
      expire(2_000);
      await remember(String(n));
    }
    const known = ['a', '0', '19'].map((network) => familiarNetworks.has(id, network));
    expect([...known, familiarNetworks.has(other.id, 'a')]).toEqual([false, true, true, true]);
    await database.write(() => store.people.delete(id));
    expect(await remember('b')).toBe(1);
    expect([familiarNetworks.has(id, '0'), familiarNetworks.has(id, 'b')]).toEqual([false, false]);
  });

  it('accepts what an authenticator without a counter has answered once, also after a restart', async () => {
    const { id, email } = await person();
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
    // The key in CBOR (RFC 9053, section 7.1.1): EC2, ES256, P-256, and its coordinates.
    const cose = [
      'a5010203262001215820',
      Buffer.from(x, 'base64url').toString('hex'),
      '225820',
      Buffer.from(y, 'base64url').toString('hex'),
    ];
    const credential_id = Buffer.from(id).toString('base64url');
    const row = { id: `psk_${id}`, created_at: store.now(), person_id: id, counter: 0, name: 'passkey' };
    const public_key = Buffer.from(cose.join(''), 'hex');
    await store.database.write(() => store.passkeys.insert({ ...row, credential_id, public_key }));
    const answer = (page: Page, counter = 0) => {
      const [, challenge = ''] = /challenge&#34;:&#34;([\w-]+)/.exec(page.body) ?? [];
      const clientData = Buffer.from(JSON.stringify({ type: 'webauthn.get', challenge, origin: SIGN_IN }));
      const authenticatorData = Buffer.alloc(37);
      createHash('sha256').update(HOST).digest().copy(authenticatorData);
      // The user is there, and was verified.
      authenticatorData[32] = 5;
      authenticatorData.writeUInt32BE(counter, 33);
      const signed = Buffer.concat([authenticatorData, createHash('sha256').update(clientData).digest()]);
      const response = {
        clientDataJSON: clientData.toString('base64url'),
        authenticatorData: authenticatorData.toString('base64url'),
        signature: sign('sha256', signed, privateKey).toString('base64url'),
      };
      const common = { id: credential_id, rawId: credential_id, type: 'public-key', clientExtensionResults: {} };
      return { response: JSON.stringify({ ...common, response }) };
    };
    const post = async (browser: WebClient, page: Page, fields: Record<string, string>) => {
      const form = { ...page, body: page.body.replace(/^[\s\S]*(?=<form method="post" action="\/passkey")/, '') };
      return (await send(browser, form, fields)).status;
    };
    const [victim, thief] = [browserAt(), browserAt()];
    const page = await victim.visit(`${SIGN_IN}/`);
    const captured = answer(page);
    const both = await Promise.all([post(victim, page, captured), post(thief, page, captured)]);
    expect(both.toSorted()).toEqual([303, 403]);
    startPage();
    expect(await post(thief, page, captured)).toBe(403);
    expire(14 * MINUTE_MS);
    expect(await post(thief, page, captured)).toBe(403);
    const form = () => browserAt().visit(`${SIGN_IN}/`);
    const next = await form();
    expect(await post(victim, next, answer(next))).toBe(303);
    expect((await victim.visit(`${SIGN_IN}/`)).body).toContain(`signed in as ${email}`);
    // Those of forms that have expired are forgotten, and a counter never goes back.
    expire(31 * MINUTE_MS);
    const counted = await form();
    expect(await post(victim, counted, answer(counted, 7))).toBe(303);
    expect(store.database.all('SELECT challenge FROM used_challenges')).toHaveLength(1);
    const older = await form();
    expect(await post(thief, older, answer(older, 6))).toBe(403);
  });

  it('does not count a password as a guess that it could not check', async () => {
    const { email } = await person();
    const browser = browserAt();
    const form = await browser.visit(`${SIGN_IN}/`);
    const signIn = () => send(browser, form, { email, password: PASSWORD });
    const check = vi.spyOn(passwords, 'matches').mockRejectedValue(new PasswordsBusy());
    onTestFinished(() => check.mockRestore());
    for (let n = 0; n < 21; n++) expect((await signIn()).status).toBe(503);
    check.mockRestore();
    expect((await signIn()).status).toBe(303);
  });

  it('sends headers against frames, scripts and caches, and refuses addresses that may not use endpoints', async () => {
    const { headers } = await browserAt().visit(`${SIGN_IN}/`);
    expect(headers['content-security-policy']).toMatch(/default-src 'none'.*frame-ancestors 'none'/);
    expect(headers).toMatchObject({ 'cache-control': 'no-store', 'x-frame-options': 'DENY' });
    expect((await browserAt('127.0.0.99').visit(`${SIGN_IN}/`)).status).toBe(403);
  });
});

describe('places of password checks', () => {
  /** Checks at the same time, and in which order they have ended; those without a place are missing. */
  async function checked(clients: { network: string; isKnown: boolean; name: string }[]): Promise<string[]> {
    const ended: string[] = [];
    const all = clients.map(async ({ name, ...client }) => {
      await passwords.matches(PASSWORD, Buffer.alloc(0), client);
      ended.push(name);
    });
    const results = await Promise.allSettled(all);
    for (const each of results) if (each.status === 'rejected') expect(each.reason).toBeInstanceOf(PasswordsBusy);
    return ended;
  }
  const flood = (networks: number, times: number) =>
    Array.from({ length: networks * times }, (_, at) => ({
      network: `net ${at % networks}`,
      isKnown: false,
      name: 'flood',
    }));
  const honest = (name: string, isKnown = false) => ({ network: `of ${name}`, isKnown, name });

  it('are shared between client networks: 24 that flood keep nobody out, who waits for a turn of each', async () => {
    const ended = await checked([...flood(24, 20), honest('jo'), honest('ann')]);
    expect(ended).toHaveLength(2 + 60);
    expect([ended.indexOf('jo'), ended.indexOf('ann')].filter((at) => at === -1 || at > 2 + 24 + 2)).toEqual([]);
  });

  it('are kept for people at networks where they have signed in, who come first', async () => {
    const ended = await checked([...flood(500, 1), honest('jo', true), honest('ann', true), honest('stranger')]);
    expect(ended.slice(0, 6)).toEqual(expect.arrayContaining(['jo', 'ann']));
    expect([ended.includes('stranger'), ended.length]).toEqual([false, 2 + 60 + 2]);
  });
});

describe('a one-time link', () => {
  const issue = async (id: string) => SIGN_IN + (await store.database.write(() => issuePersonLink(store, id))).path;

  it('lets a person choose a password, once, which replaces the one before and signs in', async () => {
    const { id, email } = await person();
    const [browser, elsewhere] = [browserAt(), browserAt()];
    await open(elsewhere, email);
    const link = await issue(id);
    const form = await browser.visit(link);
    expect(form.body).toContain('It replaces what you have signed in with before.');
    expect(await send(browser, form, { password: 'too short' })).toMatchObject({
      status: 400,
      body: expect.stringContaining('at least 12'),
    });
    // From memory, the gateway knows which sign-ins have ended.
    expect((await elsewhere.visit(`${CAM}/`)).status).toBe(200);
    const done = await browser.follow(await send(browser, form, { password: 'another horse battery' }));
    expect(done.body).toContain(`signed in as ${email}`);
    for (const again of [await browser.visit(link), await send(browser, form, { password: PASSWORD })]) {
      expect(again).toMatchObject({ status: 410, body: expect.stringContaining('Link expired') });
    }
    const asked = async () => (await elsewhere.follow(await elsewhere.visit(`${CAM}/`))).body;
    await expect.poll(asked, { timeout: 2_000 }).toContain('name="password"');
    expect((await browser.visit(`${SIGN_IN}/`)).body).toContain(`signed in as ${email}`);
    const signIn = await browserAt().visit(`${SIGN_IN}/`);
    expect((await send(browserAt(), signIn, { email, password: PASSWORD })).status).toBe(403);
    expect((await send(browserAt(), signIn, { email, password: 'another horse battery' })).status).toBe(303);
    expect(store.auditLog.where('object_id = ? ORDER BY id DESC', [id])[0]).toMatchObject({
      by: id,
      type: 'person_updated.v0',
    });
  });

  it('gives no passkey, and no session, for responses that no authenticator has made', async () => {
    const { id } = await person();
    const browser = browserAt();
    const link = await browser.visit(await issue(id));
    const signIn = await browser.visit(`${SIGN_IN}/`);
    const part = Buffer.from('{}').toString('base64url');
    const common = { id: 'AA', rawId: 'AA', type: 'public-key', clientExtensionResults: {} };
    const response = { clientDataJSON: part, attestationObject: part, authenticatorData: part, signature: part };
    for (const text of ['', '{', '[]', '{"id":1}', JSON.stringify({ ...common, response })]) {
      const forms = [
        [link, `/link/${link.url.split('/').at(-1)}/passkey`, 400],
        [signIn, '/passkey', 403],
      ] as const;
      for (const [page, action, status] of forms) {
        const form = { ...page, body: page.body.replace(/action="[^"]*"/, `action="${action}"`) };
        expect((await send(browser, form, { response: text })).status).toBe(status);
      }
    }
    expect([store.passkeys.ofPerson(id), browser.cookies]).toEqual([[], []]);
  });

  it('ends after three days, with the next link, and with the person', async () => {
    const { id } = await person();
    const status = async (url: string) => (await browserAt().visit(url)).status;
    const [first, second] = [await issue(id), await issue(id)];
    expect([await status(first), await status(second)]).toEqual([410, 200]);
    expire(3 * DAY_MS + MINUTE_MS);
    expect(await status(second)).toBe(410);
    const third = await issue(id);
    await store.database.write(() => store.people.delete(id));
    expect([await status(third), await status(`${SIGN_IN}/link/x`), await status(`${SIGN_IN}/link/%E0`)]).toEqual([
      410, 410, 404,
    ]);
  });
});
