import { gunzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { issueDashboardCode } from '../../../src/gateway/store/command-access.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { SESSION_COOKIE } from '../../../src/lib/http/browser-sessions.ts';
import { ask, askRaw } from '../../support/http-request.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';

const HOST = 'api.gateway.test';
const OWN = { host: HOST, origin: `https://${HOST}`, 'sec-fetch-site': 'same-origin' };
const VERSION = { 'service-version': '2' };

let server: ManagementServer;
/** Events that are no changes. */
let noted: [type: string, object: unknown][];
beforeEach(async () => {
  noted = [];
  server = await startManagementServer({
    activity: {
      note: (type, describe) => void noted.push([type, describe()]),
      sample: (type, _source, describe) => void noted.push([type, { ...describe(), omitted: 0 }]),
    },
  });
});
afterEach(() => server.close());

type Headers = Record<string, string>;

async function send(method: string, path: string, headers: Headers, body?: object) {
  const text = body && JSON.stringify(body);
  const answer = await ask(Number(new URL(server.url).port), HOST, {
    method,
    path,
    headers: { ...headers, ...(text !== undefined && { 'content-type': 'application/json' }) },
    ...(text !== undefined && { body: text }),
  });
  const isJson = String(answer.headers['content-type']).includes('json');
  return { ...answer, json: isJson ? JSON.parse(answer.body) : null };
}

function signIn(proof: object, headers: Headers = OWN) {
  return send('POST', '/dashboard/session', headers, proof);
}

/** `name=value` of the cookie that an answer sets. */
function cookieOf({ headers }: { headers: Record<string, unknown> }): string {
  return String(headers['set-cookie']).split(';')[0] ?? '';
}

async function signedIn(apiKey = server.apiKey): Promise<string> {
  return cookieOf(await signIn({ api_key: apiKey }));
}

function list(cookie: string, headers: Headers = OWN) {
  return send('GET', '/bot_users', { ...headers, ...VERSION, cookie });
}

it('GET / serves the dashboard to browsers only, and clients of the API get their 404', async () => {
  const page = await send('GET', '/', { host: HOST, accept: 'text/html,*/*;q=0.8', 'accept-encoding': 'identity' });
  expect(page.status).toBe(200);
  expect(page.headers['content-security-policy']).toContain("frame-ancestors 'none'");
  expect(page.headers['content-security-policy']).not.toContain('unsafe');
  expect(page.headers['x-frame-options']).toBe('DENY');
  const script = `/${/src="(assets\/[^"]+)"/.exec(page.body)?.[1]}`;
  const file = await send('GET', script, { host: HOST, 'accept-encoding': 'br' });
  expect([file.status, file.headers['content-encoding']]).toEqual([200, 'br']);
  expect(file.headers['cache-control']).toContain('immutable');
  for (const accept of ['*/*', 'application/json']) {
    const answer = await send('GET', '/', { host: HOST, accept });
    expect([answer.status, answer.json.error_code]).toEqual([404, 'ERR_GATEWAY_NO_SUCH_PATH']);
  }
});

it('browsers get long lists compressed, clients with an API key as they are', async () => {
  const cookie = await signedIn();
  for (let n = 0; n < 10; n++) await send('POST', '/bot_users', { ...OWN, ...VERSION, cookie }, { name: `bot ${n}` });
  const accepting = { ...VERSION, 'accept-encoding': 'gzip, br' };
  const read = async (headers: Headers) => {
    const port = Number(new URL(server.url).port);
    return askRaw(port, HOST, { path: '/bot_users', headers });
  };
  const [page, client] = [
    await read({ ...OWN, ...accepting, cookie }),
    await read({ ...accepting, authorization: `Bearer ${server.apiKey}` }),
  ];
  expect(page.headers).toMatchObject({ 'content-encoding': 'gzip', vary: expect.stringContaining('Accept-Encoding') });
  expect(client.headers['content-encoding']).toBeUndefined();
  expect(page.body.length).toBeLessThan(client.body.length / 2);
  expect(gunzipSync(page.body).toString()).toBe(client.body.toString());
});

it('signing in with an API key sets a cookie that scripts, other hosts and plain HTTP never see', async () => {
  const answer = await signIn({ api_key: server.apiKey });
  expect([answer.status, answer.body]).toEqual([204, '']);
  const cookie = String(answer.headers['set-cookie']);
  expect(cookie).toMatch(new RegExp(`^${SESSION_COOKIE}=[\\w-]{43}; Max-Age=2592000; Path=/; `));
  for (const attribute of ['HttpOnly', 'Secure', 'SameSite=Strict']) expect(cookie).toContain(attribute);
  expect(cookie).not.toContain('Domain');
  expect((await list(cookieOf(answer))).status).toBe(200);
});

it('no answer and no log line contains the key or the session', async () => {
  const cookie = await signedIn();
  const answers = [
    await send('GET', '/dashboard/session', { ...OWN, cookie }),
    await send('GET', '/api_keys', { ...OWN, ...VERSION, cookie }),
    await signIn({ api_key: `${server.apiKey}x` }),
    await signIn({ api_key: server.apiKey }),
  ];
  const secret = server.apiKey.split('_').at(-1) ?? '';
  expect(secret.length).toBeGreaterThan(10);
  const shown = JSON.stringify(answers.map(({ body }) => body)) + server.logged();
  for (const each of [server.apiKey, secret, cookie.split('=')[1] ?? '-']) expect(shown).not.toContain(each);
});

it('the audit log has sign-ins, and what has failed is an event without the key', async () => {
  await signedIn();
  await signIn({ api_key: `${server.apiKey}x` });
  const by = `ak_${server.apiKey.split('_')[0]}`;
  const [entry] = server.store.auditLog.page(null, 1);
  expect(entry).toMatchObject({ type: 'dashboard_session_created.v0', by, from_address: '127.0.0.1' });
  const failed = ['dashboard_sign_in_failed.v0', { client_ip: '127.0.0.1', error_code: 'ERR_NGROK_203', omitted: 0 }];
  expect(noted).toEqual([failed]);
});

it('a wrong key or code signs nobody in', async () => {
  for (const proof of [{ api_key: 'guess' }, { code: 'guess' }, { api_key: '' }]) {
    const wrong = await signIn(proof);
    expect([wrong.status, wrong.headers['set-cookie']]).toEqual([403, undefined]);
    expect(wrong.json.error_code).toMatch(/^ERR_NGROK_20[123]$/);
  }
});

it.each<[string, Headers]>([
  ['another site', { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }],
  ['a neighbour below the same site', { origin: 'https://cam.gateway.test', 'sec-fetch-site': 'same-site' }],
  ['an older browser, from a neighbour', { origin: 'https://cam.gateway.test' }],
  ['a sandboxed frame', { origin: 'null' }],
  ['the same host without TLS', { origin: `http://${HOST}` }],
  ['a client that hides where it is from', {}],
])('a session changes nothing for requests of %s (CSRF)', async (_, from) => {
  const cookie = await signedIn();
  const headers = { host: HOST, ...from, ...VERSION, cookie };
  const answers = [
    await send('POST', '/bot_users', headers, { name: 'planted' }),
    await send('DELETE', '/dashboard/session', headers),
    await send('DELETE', '/dashboard/sessions', headers),
    await signIn({ api_key: server.apiKey }, headers),
  ];
  expect(answers.map(({ status, json }) => [status, json.error_code])).toEqual(
    answers.map(() => [403, 'ERR_NGROK_207']),
  );
  expect((await list(cookie)).json.bot_users).toEqual([]);
});

it('pages of other sites read nothing with a session (cross-origin reads)', async () => {
  const cookie = await signedIn();
  for (const path of ['/bot_users', '/api_keys', '/dashboard/session', '/dashboard/events', '/metrics']) {
    for (const site of ['cross-site', 'same-site']) {
      const answer = await send('GET', path, { host: HOST, 'sec-fetch-site': site, ...VERSION, cookie });
      expect([path, answer.status, answer.json.error_code]).toEqual([path, 403, 'ERR_NGROK_207']);
      expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    }
  }
});

it('a session identifier that somebody else chose is never accepted (session fixation)', async () => {
  const chosen = `${SESSION_COOKIE}=${'A'.repeat(43)}`;
  const answer = await signIn({ api_key: server.apiKey }, { ...OWN, cookie: chosen });
  expect(cookieOf(answer)).not.toBe(chosen);
  expect((await list(chosen)).status).toBe(403);
  // Of two cookies with the name, one was planted: neither counts.
  expect((await list(`${chosen}; ${cookieOf(answer)}`)).status).toBe(403);
  const again = await signIn({ api_key: server.apiKey }, { ...OWN, cookie: cookieOf(answer) });
  expect((await list(cookieOf(answer))).status).toBe(403);
  expect((await list(cookieOf(again))).status).toBe(200);
});

it('a session ends with its API key, or when the bot user of the key is not active', async () => {
  const { store } = server;
  const owner = await server.call('POST', '/bot_users', { name: 'ops' });
  const owned = await store.database.write(() => issueApiKey(store, { owner_id: owner.id }));
  const cookie = await signedIn(owned.token);
  expect((await list(cookie)).status).toBe(200);
  await server.call('PATCH', `/bot_users/${owner.id}`, { active: false });
  expect((await list(cookie)).status).toBe(403);
  const other = await store.database.write(() => issueApiKey(store, {}));
  const second = await signedIn(other.token);
  await server.call('DELETE', `/api_keys/${other.row.id}`);
  expect((await list(second)).status).toBe(403);
});

it('signing out ends the session on the gateway too; everywhere ends those of the same key', async () => {
  const { row, token } = await server.store.database.write(() => issueApiKey(server.store, {}));
  const [phone, laptop, other] = [await signedIn(), await signedIn(), await signedIn(token)];
  expect((await send('DELETE', '/dashboard/session', { ...OWN, cookie: phone })).status).toBe(204);
  expect((await list(phone)).status).toBe(403);
  expect((await send('DELETE', '/dashboard/sessions', { ...OWN, cookie: phone })).status).toBe(403);
  expect((await send('DELETE', '/dashboard/sessions', { ...OWN, cookie: laptop })).status).toBe(204);
  expect((await list(laptop)).status).toBe(403);
  const kept = await send('GET', '/dashboard/session', { ...OWN, cookie: other });
  expect(kept.json).toMatchObject({ access: 'signed-in', holder: row.id });
});

it('a one-time code signs in once, and works in no address, where logs and histories keep it', async () => {
  const code = issueDashboardCode(server.store.box, Date.now());
  for (const path of [`/dashboard/session?code=${code}`, `/bot_users?code=${code}`, `/?code=${code}`]) {
    const answer = await send('GET', path, { ...OWN, ...VERSION });
    expect([answer.status >= 400, answer.headers['set-cookie']]).toEqual([true, undefined]);
  }
  const first = await signIn({ code });
  expect((await list(cookieOf(first))).status).toBe(200);
  const second = await signIn({ code });
  expect([second.status, second.headers['set-cookie']]).toEqual([403, undefined]);
  const { holder } = (await send('GET', '/dashboard/session', { ...OWN, cookie: cookieOf(first) })).json;
  expect(holder).toBe('gateway');
});

it('POST /dashboard/access writes who may come in into a policy, for signed-in pages of its own only', async () => {
  const cookie = await signedIn();
  const rule = '  - expressions:\n      - "true"\n    actions:\n      - type: deny\n';
  const post = (traffic_policy: string, headers: Headers = { ...OWN, cookie }) =>
    send('POST', '/dashboard/access', headers, { traffic_policy, choice: 'link', links: false });
  expect((await post(`on_http_request:\n${rule}`)).json).toEqual({
    traffic_policy: `on_http_request:\n  - actions:\n      - type: gateway-share-links\n${rule}`,
    password: null,
  });
  expect((await post('{}')).json.traffic_policy).toMatch(/^\{\n {2}"on_http_request"/);
  for (const wrong of ['a: [', 'on_sunday: []']) {
    expect(await post(wrong)).toMatchObject({ status: 400, json: { msg: expect.stringMatching(/change it by hand/) } });
  }
  expect((await post('{}', OWN)).status).toBe(403);
  expect(
    (await post('{}', { ...OWN, cookie, origin: 'https://evil.test', 'sec-fetch-site': 'cross-site' })).status,
  ).toBe(403);
});
