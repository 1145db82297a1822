import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { endSignIns } from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { recordSignIns, signOut } from '../../../src/gateway/sign-in/recorded-sign-ins.ts';
import { beginning, ISSUER } from '../../support/begun-sign-in.ts';
import { BASE_URL, type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { silentLog } from '../../support/silent-log.ts';

const FIREFOX = 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());
afterEach(() =>
  server.store.database.write(() => {
    for (const table of ['application_sessions', 'application_users', 'ended_sign_ins'])
      server.store.database.run(`DELETE FROM ${table}`);
  }),
);

async function signIn(more: Parameters<typeof beginning>[0] = {}, payer = 'cr_1'): Promise<string> {
  const { id, written } = recordSignIns(server.store)(beginning(more), payer);
  await written;
  return id;
}

const listed = async (kind: 'users' | 'sessions') =>
  (await server.call('GET', `/app/${kind}`)).body[`application_${kind}`] as Record<string, unknown>[];
const isEnded = (subject: string, sessionId: string) =>
  server.store.endedSignIns.before('elsewhere.example.com', ISSUER, subject, sessionId) > 0;

it('lists people and their sessions as ngrok does', async () => {
  const first = await signIn();
  const second = await signIn({ userAgent: FIREFOX, host: 'door.example.com' });
  const [user] = await listed('users');
  expect(await listed('users')).toEqual([
    {
      id: expect.stringMatching(/^au_/),
      uri: `${BASE_URL}/app/users/${user?.id}`,
      created_at: expect.any(String),
      identity_provider: { name: 'idp.example.com', url: ISSUER },
      provider_user_id: 'jo',
      username: '',
      email: 'jo@example.com',
      name: 'JO',
      last_active: expect.any(String),
      last_login: expect.any(String),
    },
  ]);
  const sessions = await listed('sessions');
  expect(sessions.map(({ id }) => id)).toEqual([second, first]);
  expect(sessions[0]).toMatchObject({
    public_url: 'https://door.example.com',
    browser_session: {
      user_agent: {
        raw: FIREFOX,
        browser_name: 'Firefox',
        browser_version: '140.0',
        device_type: 'Desktop',
        os_name: 'Windows',
      },
      ip_address: '203.0.113.7',
    },
    application_user: { id: user?.id },
    endpoint: { id: 'ep_1' },
  });
});

it('DELETE ends one session, or all of a person, and lists forget them', async () => {
  const [first, second] = [await signIn(), await signIn()];
  const other = await signIn({ subject: 'ann' });
  expect((await server.call('DELETE', `/app/sessions/${first}`)).status).toBe(204);
  await expect.poll(() => isEnded('jo', first)).toBe(true);
  expect(isEnded('jo', second)).toBe(false);
  expect((await listed('sessions')).map(({ id }) => id)).toEqual([other, second]);
  const jo = (await listed('users')).find(({ name }) => name === 'JO');
  expect((await server.call('DELETE', `/app/users/${jo?.id}`)).status).toBe(204);
  await expect.poll(() => isEnded('jo', second)).toBe(true);
  expect(isEnded('ann', other)).toBe(false);
  expect((await listed('sessions')).map(({ id }) => id)).toEqual([other]);
  expect((await listed('users')).map(({ name }) => name)).toEqual(['ANN']);
  const { type, by, after } = server.store.auditLog.page(null, 1)[0] ?? {};
  expect([type, by?.startsWith('ak_'), after?.subject]).toEqual(['ended_sign_ins_created.v0', true, 'jo']);
});

it('ends the session of a browser that signs out, and records that as nobody’s change', async () => {
  const { auditLog } = server.store;
  const before = auditLog.latestId();
  const [first, second] = [await signIn({ subject: 'kim' }), await signIn({ subject: 'kim' })];
  for (const id of [first, 'as_unknown']) signOut(server.store, id, silentLog);
  await expect.poll(() => isEnded('kim', first)).toBe(true);
  expect([isEnded('kim', second), isEnded('kim', 'as_unknown')]).toEqual([false, false]);
  expect((await listed('sessions')).map(({ id }) => id)).toEqual([second]);
  expect(auditLog.latestId()).toBe(before);
});

it('beyond the limit, the authtoken whose sessions were signed out of most loses its oldest end', async () => {
  const { database, endedSignIns } = server.store;
  const row = { created_at: '2026-11-01T00:00:00Z', host: null, issuer: ISSUER, subject: 'kim' };
  const end = (id: string, payer: string | null) =>
    endedSignIns.end({ ...row, id: `esi_${id}`, session_id: id, payer }, Number.MAX_SAFE_INTEGER / 1e4, 3);
  await database.write(() => {
    end('a', null);
    end('b', 'cr_1');
    for (const id of ['c', 'd', 'e']) end(id, 'cr_2');
  });
  await expect.poll(() => ['a', 'b', 'c', 'd', 'e'].filter((id) => isEnded('kim', id)).join('')).toBe('abde');
});

it('sign-ins that end at a host leave those that share a domain with others', async () => {
  await signIn();
  const shared = await signIn({ host: null });
  await server.store.database.write(() => endSignIns(server.store, { host: 'cam.example.com' }));
  expect((await listed('sessions')).map(({ id }) => id)).toEqual([shared]);
});

it('lists nobody whose session has expired, and forgets them with the next sign-in', async () => {
  const id = await signIn({ expiresAt: Date.now() - 1000 });
  expect(await listed('sessions')).toEqual([]);
  expect(server.store.applicationSessions.get(id)).not.toBeNull();
  await signIn({ subject: 'ann' });
  expect(server.store.applicationSessions.get(id)).toBeNull();
  expect((await listed('users')).map(({ name }) => name)).toEqual(['ANN']);
});

it('when the list is full, the authtoken with the most sessions loses its oldest one', async () => {
  const { database, applicationSessions: sessions } = server.store;
  const ids = [await signIn({}, 'cr_1'), await signIn({}, 'cr_2'), await signIn({}, 'cr_2')];
  const row = sessions.get(ids[1] ?? '');
  await database.write(() => row && sessions.add({ ...row, id: `${row.id}0` }, 3));
  expect(ids.map((id) => sessions.get(id) !== null)).toEqual([true, false, true]);
});

it.each([
  ['a name', { person: { subject: 'jo', email: '', name: 'J'.repeat(60_000) } }],
  ['a user agent', { userAgent: 'A'.repeat(60_000) }],
])('keeps %s short that somebody else has chosen', async (_, more) => {
  const id = await signIn(more);
  const { user_agent, user_id } = server.store.applicationSessions.get(id) ?? {};
  expect(user_agent?.length).toBeLessThanOrEqual(500);
  expect(server.store.applicationUsers.get(user_id ?? '')?.name.length).toBeLessThanOrEqual(500);
});

it('lists people whose provider tells what cannot be stored', async () => {
  await signIn({ person: { subject: 'jo', email: '', name: 'J\0o\ud800\u001b[2J' } });
  expect((await listed('users')).map(({ name }) => name)).toEqual(['J o  [2J']);
});

it('writes down so many sign-ins of one authtoken, and those of others', async () => {
  const record = recordSignIns(server.store, { requests: 2, windowMs: 600_000 });
  const writes = ['cr_1', 'cr_1', 'cr_1', 'cr_2'].map((payer) => record(beginning(), payer).written);
  const outcomes = (await Promise.allSettled(writes)).map(({ status }) => status);
  expect(outcomes).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
});

it('writes neither endless identifiers of people nor more than a hundred sign-ins at a time', async () => {
  await expect(signIn({ person: { subject: 'j'.repeat(501), email: '', name: '' } })).rejects.toThrow('too long');
  const record = recordSignIns(server.store);
  const all = Array.from({ length: 101 }, () => record(beginning(), 'cr_1').written);
  expect((await Promise.allSettled(all)).map(({ status }) => status).indexOf('rejected')).toBe(100);
});
