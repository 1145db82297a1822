import request from 'supertest';
import { expect, it } from 'vitest';
import { createLocalApp } from '../../../../src/agent/api/app.ts';
import { SESSION_COOKIE } from '../../../../src/lib/http/browser-sessions.ts';
import { issueCode } from '../../../../src/lib/http/one-time-code.ts';
import { setUpApi, TOKEN } from '../../../support/api-set-up.ts';

const HOST = 'agent.site.example.com';
const OWN = { Host: HOST, Origin: `https://${HOST}`, 'Sec-Fetch-Site': 'same-origin' };

type App = Parameters<typeof request>[0];

function signIn(app: App, proof: object, headers: Record<string, string> = OWN) {
  return request(app).post('/page/session').set(headers).send(proof);
}

/** `name=value` of the cookie that an answer sets. */
function cookieOf({ headers }: request.Response): string {
  return String(headers['set-cookie']).split(';')[0] ?? '';
}

async function signedIn(app: App): Promise<string> {
  return cookieOf(await signIn(app, { token: TOKEN }));
}

it('signing in with the token sets a cookie that scripts, other hosts and plain HTTP never see', async () => {
  const { remote } = await setUpApi();
  const answer = await signIn(remote, { token: TOKEN });
  expect(answer.status).toBe(204);
  const [cookie = ''] = answer.headers['set-cookie'] ?? [];
  expect(cookie).toMatch(new RegExp(`^${SESSION_COOKIE}=[\\w-]{43}; Max-Age=2592000; Path=/; `));
  for (const attribute of ['HttpOnly', 'Secure', 'SameSite=Strict']) expect(cookie).toContain(attribute);
  expect(cookie).not.toContain('Domain');
  const list = await request(remote).get('/tunnels').set(OWN).set('Cookie', cookieOf(answer));
  expect(list.status).toBe(200);
});

it('a client that has not signed in may not send more than a token', async () => {
  const { remote } = await setUpApi();
  expect((await signIn(remote, { token: 'a'.repeat(4_096) })).status).toBe(401);
  const answer = await signIn(remote, { token: 'a'.repeat(8_192) });
  expect(answer.status).toBe(413);
  expect(answer.body).toMatchObject({ error_code: 'ERR_AGENT_BODY_TOO_LARGE', msg: 'the body is larger than 8 KiB' });
});

it('a wrong token signs nobody in, and guesses count together with those of API calls', async () => {
  const { remote } = await setUpApi();
  for (let n = 0; n < 5; n++) {
    const wrong = await signIn(remote, { token: 'guess' });
    expect([wrong.status, wrong.headers['set-cookie']]).toEqual([401, undefined]);
  }
  expect((await signIn(remote, { code: 'guess' })).status).toBe(429);
  expect((await request(remote).get('/tunnels').auth('guess', { type: 'bearer' })).status).toBe(429);
  expect((await signIn(remote, { token: TOKEN })).status).toBe(204);
});

it.each([
  ['another site', { Origin: 'https://evil.example', 'Sec-Fetch-Site': 'cross-site' }],
  ['a neighbour below the same site', { Origin: 'https://cam.site.example.com', 'Sec-Fetch-Site': 'same-site' }],
  ['an older browser, from a neighbour', { Origin: 'https://cam.site.example.com' }],
  ['a sandboxed frame', { Origin: 'null' }],
  ['the same host without TLS', { Origin: `http://${HOST}` }],
  ['a client that hides where it is from', {}],
])('a session changes nothing for requests of %s (CSRF)', async (_, headers) => {
  const { remote, tunnels } = await setUpApi();
  const cookie = await signedIn(remote);
  const call = (method: 'post' | 'delete', path: string) =>
    request(remote)
      [method](path)
      .set({ Host: HOST, ...headers })
      .set('Cookie', cookie);
  const answers = [
    await call('post', '/tunnels').send({ forwards_to: 8001 }),
    await call('post', '/page/doctor'),
    await call('delete', '/page/session'),
    await call('delete', '/page/sessions'),
    await signIn(remote, { token: TOKEN }, { Host: HOST, ...headers }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403]);
  expect(tunnels.list()).toEqual([]);
  expect((await request(remote).get('/tunnels').set(OWN).set('Cookie', cookie)).status).toBe(200);
});

it('pages of other sites read nothing with a session (cross-origin reads)', async () => {
  const { remote } = await setUpApi();
  const cookie = await signedIn(remote);
  for (const path of ['/tunnels', '/status', '/page/suggestions', '/page/events']) {
    for (const site of ['cross-site', 'same-site']) {
      const answer = await request(remote).get(path).set({ Host: HOST, 'Sec-Fetch-Site': site }).set('Cookie', cookie);
      expect([path, answer.status, answer.body.error_code]).toEqual([path, 403, 'ERR_AGENT_CROSS_SITE']);
      expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    }
  }
});

it('a session identifier that somebody else chose is never accepted (session fixation)', async () => {
  const { remote } = await setUpApi();
  const chosen = `${SESSION_COOKIE}=${'A'.repeat(43)}`;
  const answer = await signIn(remote, { token: TOKEN }, { ...OWN, Cookie: chosen });
  expect(cookieOf(answer)).not.toBe(chosen);
  const call = (cookie: string) => request(remote).get('/tunnels').set(OWN).set('Cookie', cookie);
  expect((await call(chosen)).status).toBe(401);
  // Of two cookies with the name, one was planted: neither counts.
  expect((await call(`${chosen}; ${cookieOf(answer)}`)).status).toBe(401);
  // A name of its own, which neighbours below the same domain may plant.
  expect((await call(`\u00a0${chosen}; ${cookieOf(answer)}`)).status).toBe(200);
});

it('signing in again ends the session before', async () => {
  const { remote } = await setUpApi();
  const before = await signedIn(remote);
  await signIn(remote, { token: TOKEN }, { ...OWN, Cookie: before });
  expect((await request(remote).get('/tunnels').set(OWN).set('Cookie', before)).status).toBe(401);
});

it('signing out ends the session on the agent too; everywhere ends all of them', async () => {
  const { remote } = await setUpApi();
  const [phone, laptop, other] = [await signedIn(remote), await signedIn(remote), await signedIn(remote)];
  const call = (method: 'get' | 'delete', path: string, cookie: string) =>
    request(remote)[method](path).set(OWN).set('Cookie', cookie);
  expect((await call('delete', '/page/session', phone)).status).toBe(204);
  expect((await call('get', '/tunnels', phone)).status).toBe(401);
  expect((await call('get', '/tunnels', laptop)).status).toBe(200);
  expect((await call('delete', '/page/sessions', phone)).status).toBe(401);
  expect((await call('delete', '/page/sessions', laptop)).status).toBe(204);
  for (const cookie of [laptop, other]) expect((await call('get', '/tunnels', cookie)).status).toBe(401);
});

it('a one-time code signs in once', async () => {
  const { remote } = await setUpApi();
  const code = issueCode(TOKEN, Date.now());
  const first = await signIn(remote, { code });
  expect((await request(remote).get('/tunnels').set(OWN).set('Cookie', cookieOf(first))).status).toBe(200);
  const second = await signIn(remote, { code });
  expect([second.status, second.headers['set-cookie']]).toEqual([401, undefined]);
});

it('neither token nor code work in the query, where logs and histories keep them', async () => {
  const { remote } = await setUpApi();
  for (const query of [{ token: TOKEN }, { code: issueCode(TOKEN, Date.now()) }]) {
    for (const path of ['/page/session', '/tunnels']) {
      const answer = await request(remote).get(path).query(query).set(OWN);
      expect(answer.status).toBeGreaterThanOrEqual(400);
      expect(answer.headers['set-cookie']).toBeUndefined();
    }
  }
});

it('the page says how a browser gets at the API', async () => {
  const { remote, local, options } = await setUpApi();
  const access = async (app: App, cookie = '') =>
    (await request(app).get('/page/session').set('Cookie', cookie)).body.access;
  expect(await access(remote)).toBe('sign-in');
  const insecure = createLocalApp(options, '192.168.1.7', () => TOKEN);
  expect(await access(insecure)).toBe('insecure');
  const open = await request(local).get('/page/session').set('Host', 'localhost:4040');
  expect(open.body.access).toBe('open');
});

it('signing in is not offered where a browser would keep no cookie', async () => {
  const { options } = await setUpApi();
  const insecure = createLocalApp(options, '192.168.1.7', () => TOKEN);
  const answer = await signIn(
    insecure,
    { token: TOKEN },
    { Host: '192.168.1.7:4040', Origin: 'http://192.168.1.7:4040' },
  );
  expect([answer.status, answer.headers['set-cookie']]).toEqual([405, undefined]);
});
