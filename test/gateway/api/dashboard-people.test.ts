import { createServer, request as sendRequest } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { actorDescriptions } from '../../../src/gateway/events/shown-events.ts';
import {
  addPerson,
  endSignIns,
  issuePersonLink,
  removePerson,
  usePersonLink,
} from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { createSignInPage } from '../../../src/gateway/sign-in/page/sign-in-page.ts';
import { Passwords } from '../../../src/gateway/sign-in/passwords.ts';
import { issueDashboardCode } from '../../../src/gateway/store/command-access.ts';
import type { PersonRow } from '../../../src/gateway/store/people.ts';
import type { PublicRequest } from '../../../src/traffic-policy/fetch-document.ts';
import { listening } from '../../support/loopback.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { silentLog } from '../../support/silent-log.ts';
import { type Page, WebClient } from '../../support/web-client.ts';

const API = 'https://api.gateway.test';
const SIGN_IN = 'https://sign-in.gateway.test';
const CAM = 'https://cam.gateway.test';
const PASSWORD = 'correct horse battery';
const MINUTE_MS = 60_001;
const OWN = { origin: API, 'sec-fetch-site': 'same-origin' };

let server: ManagementServer;
/** Events that are no changes. */
const noted: object[] = [];
/** Milliseconds that have passed for the gateway. */
let passed = 0;
let ports: Readonly<Record<string, number>>;
let added = 0;
const passwords = new Passwords({ log2N: 4, r: 1, p: 1 });
const page = createServer();

beforeAll(async () => {
  const wallClock = () => Date.now() + passed;
  const note = (type: string, describe: () => object) => void noted.push({ type, ...describe() });
  const sample = (type: string, _source: string, describe: () => object) =>
    note(type, () => ({ ...describe(), omitted: 0 }));
  const activity = { note, sample };
  server = await startManagementServer({ wallClock, activity });
  const { store, people } = server;
  const isRefused = () => false;
  page.on(
    'request',
    createSignInPage(
      { store, options: {}, activity, log: silentLog },
      { people, isRefused, applications: () => [], passwords, wallClock },
    ),
  );
  ports = { [API]: Number(new URL(server.url).port), [SIGN_IN]: await listening(page) };
});
afterAll(async () => {
  page.close();
  await server.close();
});

/** A browser at an address of its own, as attempts are limited for each. */
function browserAt(localAddress = `127.2.${Math.floor(++added / 250)}.${added % 250}`): WebClient {
  return new WebClient((url, { method = 'GET', headers = {}, body }: PublicRequest = {}) => {
    const { origin, host, pathname, search } = new URL(url);
    const to = { host: '127.0.0.1', port: ports[origin], localAddress, agent: false };
    return new Promise((resolve, reject) => {
      const options = { ...to, method, path: pathname + search, headers: { ...headers, host } };
      sendRequest(options, async (response) =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: await buffer(response) }),
      )
        .on('error', reject)
        .end(body);
    });
  });
}

/** A person with a password. */
async function person({ dashboard = true } = {}): Promise<PersonRow> {
  const { store } = server;
  const password_hash = await passwords.hash(PASSWORD);
  return store.database.write(() => {
    const added = addPerson(store, { email: `jo${store.people.count('TRUE', [])}@example.com`, name: 'Jo', dashboard });
    const row = { ...added, password_hash, password_set_at: store.now() };
    store.people.update(row);
    return row;
  });
}

function post(browser: WebClient, path: string, body: object, headers: Record<string, string> = OWN): Promise<Page> {
  const type = { 'content-type': 'application/json' };
  return browser.visit(API + path, { method: 'POST', headers: { ...type, ...headers }, body: JSON.stringify(body) });
}

/** Starts at the dashboard. @returns the form of the page for sign-in */
async function begin(browser: WebClient, view = ''): Promise<Page> {
  const { url } = JSON.parse((await post(browser, '/dashboard/sign-in', { view })).body);
  return browser.visit(url);
}

/** Sends the form, as a person. @returns the answer, which leads back */
function submit(browser: WebClient, form: Page, { email }: Pick<PersonRow, 'email'>, password = PASSWORD) {
  const [, sealed = ''] = /name="request" type="hidden" value="([^"]+)"/.exec(form.body) ?? [];
  const body = new URLSearchParams({ request: sealed, email, password }).toString();
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: SIGN_IN };
  return browser.visit(`${SIGN_IN}/sign-in`, { method: 'POST', headers, body });
}

const locationOf = ({ headers }: Page) => String(headers.location);

/** Signs a browser in to the dashboard. */
async function signIn(browser: WebClient, who: PersonRow, view?: string): Promise<Page> {
  return browser.visit(locationOf(await submit(browser, await begin(browser, view), who)));
}

async function holderAt(browser: WebClient): Promise<string | null> {
  return JSON.parse((await browser.visit(`${API}/dashboard/session`)).body).holder;
}

it('signs a person in as themselves, and leads back to the view', async () => {
  const [jo, browser] = [await person(), browserAt()];
  const back = await signIn(browser, jo, '#/devices');
  expect([back.status, locationOf(back)]).toEqual([303, '/#/devices']);
  expect(String(back.headers['set-cookie'])).toMatch(/__Host-device-agent=[\w-]{43};.* SameSite=Strict/);
  const session = JSON.parse((await browser.visit(`${API}/dashboard/session`)).body);
  expect(session).toEqual({
    access: 'signed-in',
    holder: jo.id,
    name: `Jo (${jo.email})`,
    hasPeople: true,
  });
});

it("a person's sign-in and changes are in the audit log by their name, also when they are removed", async () => {
  const [jo, browser] = [await person(), browserAt()];
  await signIn(browser, jo);
  const { status } = await post(browser, '/ip_policies', {}, { ...OWN, 'service-version': '2' });
  expect(status).toBe(201);
  const { store, people } = server;
  await store.database.write(() => removePerson(store, jo.id, people.issuer), { by: 'ak_1', from: null });
  const types = store.auditLog.find({ by: jo.id }, { after: '' }, 10).map(({ type }) => type);
  expect(types).toEqual(['dashboard_session_created.v0', 'ip_policy_created.v0']);
  const { body } = await server.call('GET', `/audit_events?by=${jo.id}`);
  expect(body.audit_events).toEqual(types.map(() => expect.objectContaining({ by_description: `Jo (${jo.email})` })));
});

it('changes that people make at the page for sign-in do not push out those at the dashboard', async () => {
  const [jo, browser] = [await person(), browserAt()];
  await signIn(browser, jo);
  const { auditLog, database, ids } = server.store;
  auditLog.keepFor(90, 50);
  onTestFinished(() => auditLog.keepFor(90));
  const note = () => database.noteChange({ table: 'passkeys', before: null, after: { id: ids.next('psk') } });
  await database.write(() => Array.from({ length: 400 }, note), { by: jo.id, from: null });
  const left = auditLog.find({ by: jo.id }, { after: '' }, 500);
  expect(left[0]?.type).toBe('dashboard_session_created.v0');
  expect(left.length).toBeLessThan(300);
});

it('asks for the password again in a browser that is signed in at the gateway', async () => {
  const [jo, browser] = [await person(), browserAt()];
  await signIn(browser, jo);
  await browser.visit(`${API}/dashboard/session`, { method: 'DELETE', headers: OWN });
  const form = await begin(browser);
  expect([form.status, form.body]).toEqual([200, expect.stringContaining('to use the dashboard of this gateway')]);
  const [, request = ''] = /value="([^"]+)"/.exec(form.body) ?? [];
  const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: SIGN_IN };
  const body = new URLSearchParams({ request }).toString();
  const around = await browser.visit(`${SIGN_IN}/continue`, { method: 'POST', headers, body });
  expect([around.status, around.body]).toEqual([200, expect.stringContaining('name="password"')]);
  expect(await holderAt(browser)).toBeNull();
});

it('two tabs sign in one after the other', async () => {
  const [jo, ann, browser] = [await person(), await person(), browserAt()];
  const forms = [await begin(browser, '#/a'), await begin(browser, '#/b')] as const;
  for (const [form, who, view] of [[forms[1], ann, '/#/b'] as const, [forms[0], jo, '/#/a'] as const]) {
    expect(locationOf(await browser.visit(locationOf(await submit(browser, form, who))))).toBe(view);
    expect(await holderAt(browser)).toBe(who.id);
  }
});

it('tells a person without the right so, and hands out no code', async () => {
  const [guest, browser] = [await person({ dashboard: false }), browserAt()];
  noted.length = 0;
  const answer = await submit(browser, await begin(browser), guest);
  expect([answer.status, answer.headers.location]).toEqual([403, undefined]);
  expect(answer.body).toContain(`${guest.email} may not use the dashboard of this gateway`);
  expect(answer.body).toContain(`href="${API}/"`);
  expect(await holderAt(browser)).toBeNull();
  await submit(browser, await begin(browser), guest, 'a wrong password');
  const type = 'dashboard_sign_in_failed.v0';
  expect(noted).toMatchObject([
    { type, error_code: 'ERR_GATEWAY_NOT_ADMITTED' },
    { type, error_code: 'ERR_NGROK_203' },
  ]);
});

interface Parties {
  /** Of the person whom somebody attacks. */
  victim: WebClient;
  attacker: WebClient;
  jo: PersonRow;
  /** Somebody else who may use the dashboard. */
  mallory: PersonRow;
}

/**
 * Comes back to the dashboard, in the attacker's browser, with a code of the victim for an endpoint. It has the challenge and the
 * state of the attacker's own sign-in.
 */
async function withCodeOfEndpoint({ victim, attacker, jo }: Parties, endpoint: Record<string, string>): Promise<Page> {
  const { url } = await begin(attacker);
  const sealed = new URL(url).searchParams.get('request') ?? '';
  const { state = '', challenge = '' } = server.people.requestIn(sealed) ?? {};
  const common = { state, code_challenge: challenge, max_age: '1000', owner: 'bot' };
  const form = await victim.visit(await server.people.authorizationUrl({ ...common, ...endpoint }));
  const back = new URL(locationOf(await submit(victim, form, jo)));
  return attacker.visit(`${API}/dashboard/sign-in/callback${back.search}`);
}

it.each<[string, number, string, (parties: Parties) => Promise<Page>]>([
  [
    'a code for somebody else, in a link (login CSRF)',
    400,
    'ERR_NGROK_3121',
    async ({ victim, attacker, mallory }) => {
      await begin(victim);
      return victim.visit(locationOf(await submit(attacker, await begin(attacker), mallory)));
    },
  ],
  [
    "somebody else's code with this browser's state",
    400,
    'ERR_NGROK_3122',
    async ({ victim, attacker, mallory, jo }) => {
      const own = new URL(locationOf(await submit(victim, await begin(victim), jo)));
      const other = new URL(locationOf(await submit(attacker, await begin(attacker), mallory)));
      own.searchParams.set('code', other.searchParams.get('code') ?? '');
      return victim.visit(own.href);
    },
  ],
  [
    'a form that the attacker has begun, filled in by the victim',
    400,
    'ERR_NGROK_3121',
    async ({ victim, attacker, jo }) => victim.visit(locationOf(await submit(victim, await begin(attacker), jo))),
  ],
  [
    'a code that was used, with the cookies from before',
    400,
    'ERR_NGROK_3123',
    async ({ victim, attacker, jo }) => {
      const back = locationOf(await submit(victim, await begin(victim), jo));
      const copies = victim.cookies.filter(({ name }) => name.includes('ngrok-sign-in'));
      await victim.visit(back);
      await victim.visit(`${API}/dashboard/session`, { method: 'DELETE', headers: OWN });
      attacker.cookies = copies;
      return attacker.visit(back);
    },
  ],
  [
    'a code that is older than a minute',
    400,
    'ERR_NGROK_3122',
    async ({ victim, jo }) => {
      const back = locationOf(await submit(victim, await begin(victim), jo));
      passed += MINUTE_MS;
      onTestFinished(() => {
        passed -= MINUTE_MS;
      });
      return victim.visit(back);
    },
  ],
  [
    'a code from before the sign-ins of the person were ended',
    400,
    'ERR_NGROK_3122',
    async ({ victim, jo }) => {
      const back = locationOf(await submit(victim, await begin(victim), jo));
      await change(({ store, people }) => endSignIns(store, { issuer: people.issuer, subject: jo.id }));
      return victim.visit(back);
    },
  ],
  [
    'a code of somebody who has lost the right since',
    403,
    'ERR_GATEWAY_NOT_ADMITTED',
    async ({ victim, jo }) => {
      const back = locationOf(await submit(victim, await begin(victim), jo));
      await change(({ store }) => store.people.update({ ...jo, dashboard: false }));
      return victim.visit(back);
    },
  ],
  [
    'a code that a tenant got at an endpoint of theirs',
    400,
    'ERR_NGROK_3122',
    (parties) => withCodeOfEndpoint(parties, { redirect_uri: `${CAM}/ngrok/oidc/callback` }),
  ],
  [
    "a code for an endpoint that had the dashboard's callback",
    400,
    'ERR_NGROK_3122',
    (parties) =>
      withCodeOfEndpoint(parties, { redirect_uri: `${API}/dashboard/sign-in/callback`, isForDashboard: 'true' }),
  ],
  [
    'a request that was not sealed here',
    400,
    'Start again',
    async ({ victim }) => victim.visit(`${SIGN_IN}/?request=${'A'.repeat(300)}`),
  ],
  [
    'a neighbour that begins a sign-in',
    403,
    'ERR_NGROK_207',
    ({ attacker }) =>
      post(attacker, '/dashboard/sign-in', { view: '' }, { origin: CAM, 'sec-fetch-site': 'same-site' }),
  ],
  [
    'a view that would lead to another host',
    400,
    'ERR_NGROK_',
    ({ attacker }) => post(attacker, '/dashboard/sign-in', { view: '//evil.example' }),
  ],
])('%s signs nobody in', async (_, status, text, attack) => {
  const parties = { victim: browserAt(), attacker: browserAt(), jo: await person(), mallory: await person() };
  const answer = await attack(parties);
  expect([answer.status, answer.body]).toEqual([status, expect.stringContaining(text)]);
  const holders = await Promise.all([parties.victim, parties.attacker].map(holderAt));
  expect(holders).toEqual([null, null]);
});

function change(work: (parts: ManagementServer) => void): Promise<void> {
  return server.store.database.write(() => work(server));
}

it('the code goes to the dashboard only, whatever host the request names', async () => {
  const browser = browserAt();
  const answer = await browser.visit(`${API}/dashboard/sign-in`, {
    method: 'POST',
    headers: {
      ...OWN,
      'content-type': 'application/json',
      'x-forwarded-host': 'evil.example',
      forwarded: 'host=evil.example',
    },
    body: '{"view":""}',
  });
  const sealed = new URL(JSON.parse(answer.body).url);
  expect(sealed.origin).toBe(SIGN_IN);
  const request = server.people.requestIn(sealed.searchParams.get('request') ?? '');
  expect(request?.callback).toBe(`${API}/dashboard/sign-in/callback`);
});

it('a session that the browser had before ends, and nobody knows the new one (session fixation)', async () => {
  const [jo, browser, other] = [await person(), browserAt(), browserAt()];
  await post(browser, '/dashboard/session', { api_key: server.apiKey });
  other.cookies = [...browser.cookies];
  await signIn(browser, jo);
  expect([await holderAt(browser), await holderAt(other)]).toEqual([jo.id, null]);
});

it.each<[string, (jo: PersonRow) => unknown]>([
  ['the person is removed', ({ id }) => change(({ store, people }) => removePerson(store, id, people.issuer))],
  ['the person loses the right', (jo) => server.call('PATCH', `/people/${jo.id}`, { dashboard: false })],
  ['the person is signed out', ({ id }) => server.call('POST', `/people/${id}/sign_out`)],
  [
    'the person chooses a new password by a link',
    ({ id }) =>
      change(({ store, people }) => {
        const token = issuePersonLink(store, id).path.slice('/link/'.length);
        usePersonLink(store, token, people.issuer, { password_hash: Buffer.alloc(1) });
      }),
  ],
])('a session ends when %s', async (_, end) => {
  const [jo, browser, linked] = [await person(), browserAt(), browserAt()];
  await signIn(browser, jo);
  await post(linked, '/dashboard/session', { code: codeFor(jo) });
  const unused = codeFor(jo);
  expect([await holderAt(browser), await holderAt(linked)]).toEqual([jo.id, jo.id]);
  await end(jo);
  expect([await holderAt(browser), await holderAt(linked)]).toEqual([null, null]);
  const late = await post(browserAt(), '/dashboard/session', { code: unused });
  expect([late.status, late.body]).toEqual([403, expect.stringContaining('ERR_GATEWAY_NOT_ADMITTED')]);
});

/** The code in a link of `gateway dashboard --as`. */
function codeFor({ id }: PersonRow): string {
  return issueDashboardCode(server.store.box, server.people.signInTime(id), id);
}

it('a link with a name signs in as that person, once, and as nobody else', async () => {
  const [jo, ann] = [await person(), await person()];
  const asOther = codeFor(jo).replace(jo.id, ann.id);
  const plain = codeFor(jo).replace(`${jo.id}-`, '');
  for (const code of [asOther, plain, `${jo.id}-`, `prs_x-${plain}`]) {
    expect((await post(browserAt(), '/dashboard/session', { code })).status).toBe(403);
  }
  const [code, browser] = [codeFor(jo), browserAt()];
  expect((await post(browser, '/dashboard/conditions', { code: codeFor(jo) })).status).toBe(403);
  expect((await post(browser, '/dashboard/session', { code })).status).toBe(204);
  expect(await holderAt(browser)).toBe(jo.id);
  expect((await post(browserAt(), '/dashboard/session', { code })).status).toBe(403);
  expect(actorDescriptions(server.store)(jo.id)).toBe(`Jo (${jo.email})`);
});

it('signing out everywhere ends all sessions of the person, also at the page for sign-in', async () => {
  const [jo, phone, laptop] = [await person(), browserAt(), browserAt()];
  await signIn(phone, jo);
  await signIn(laptop, jo);
  const { status } = await phone.visit(`${API}/dashboard/sessions`, { method: 'DELETE', headers: OWN });
  expect([status, await holderAt(phone), await holderAt(laptop)]).toEqual([204, null, null]);
  expect((await laptop.visit(`${SIGN_IN}/`)).body).toContain('name="password"');
});

it('an IP restriction of the dashboard refuses people, when they begin, come back and with a session', async () => {
  const [jo, browser] = [await person(), browserAt()];
  const form = await begin(browser);
  const { store } = server;
  const policy = await server.call('POST', '/ip_policies', {});
  await server.call('POST', '/ip_policy_rules', { ip_policy_id: policy.id, cidr: '203.0.113.0/24', action: 'allow' });
  const outside = browserAt();
  await signIn(outside, jo);
  const rule = { type: 'dashboard', enforced: true, ip_policy_ids: [policy.id] };
  const restriction = await server.call('POST', '/ip_restrictions', rule);
  onTestFinished(async () => void (await server.call('DELETE', `/ip_restrictions/${restriction.id}`)));
  const answers = [
    await browser.visit(locationOf(await submit(browser, form, jo))),
    await post(browser, '/dashboard/sign-in', { view: '' }),
    await outside.visit(`${API}/dashboard/session`),
  ];
  expect(answers.map(({ status, body }) => [status, body.includes('ERR_NGROK_1212')])).toEqual(
    answers.map(() => [403, true]),
  );
  expect(store.auditLog.find({ by: jo.id }, { after: '' }, 10)).toHaveLength(1);
});
