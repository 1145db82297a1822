import { describe, expect, it, onTestFinished } from 'vitest';
import { AuthtokenAcl } from '../../../src/gateway/access/authtoken-acl.ts';
import { credentialOf } from '../../../src/gateway/access/authtoken-authentication.ts';
import { Enrolments } from '../../../src/gateway/devices/enrolments.ts';
import type { GatewayPlace } from '../../../src/gateway/devices/invite.ts';
import { gatewayDomains } from '../../../src/gateway/endpoints/domain-names.ts';
import type { LiveEndpoint, LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import { parseJoinCode } from '../../../src/management/join-code.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { InstantClock } from '../../support/instant-clock.ts';
import {
  type Answer,
  BASE_DOMAIN,
  type ManagementServer,
  type ManagementServerOptions,
  startManagementServer,
} from '../../support/management-server.ts';
import { ENDPOINT, SESSION } from '../../support/online-agent.ts';

async function gateway(options: ManagementServerOptions = {}): Promise<ManagementServer> {
  const server = await startManagementServer(options);
  onTestFinished(() => server.close());
  return server;
}

/** What a device sends; it has neither an API key nor a version. */
const join = (server: ManagementServer, body: object): Promise<Answer> =>
  server.call('POST', '/enrolments', body, { Authorization: '', 'Service-Version': '' });

const codeOf = ({ status, body }: Answer) => [status, body.error_code];

/** The id of an authtoken's credential while it is valid, else null. */
function credentialIdOf({ store }: ManagementServer, { body }: Answer): string | null {
  const found = credentialOf(String(body.authtoken), store);
  return 'id' in found ? found.id : null;
}

function mayBind({ store }: ManagementServer, credentialId: string | null, hostname: string): boolean {
  const acl = new AuthtokenAcl(store, gatewayDomains(BASE_DOMAIN));
  return acl.authorize(String(credentialId), { kind: 'hostname', hostname }) === null;
}

/** Makes as many devices of one, that included. */
async function multiply({ store }: ManagementServer, id: unknown, total: number): Promise<void> {
  const { devices, database, ids } = store;
  const row = devices.get(String(id));
  if (row === null) throw new Error('no device');
  await database.write(() => {
    for (let at = 1; at < total; at++)
      devices.insert({ ...row, id: ids.next('dev'), name: `cam-${at}`, install_hash: Buffer.from(`key ${at}`) });
  });
}

describe('POST /enrolments', () => {
  it('gives each device a name, a domain and an authtoken of its own, which binds only its names', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server, { tcp_ports: '20000-20009' });
    const one = await join(server, { install_key: installKey(), secret, name: 'Cabinet 7.local' });
    const two = await join(server, { install_key: installKey(), secret, name: 'cabinet-7-local' });
    expect(one.body).toMatchObject({
      status: 'enrolled',
      name: 'cabinet-7-local',
      domain: 'agent-cabinet-7-local.site.example.com',
      site: 'site.example.com',
      session_address: 'connect.gateway.test:443',
    });
    expect(two.body).toMatchObject({ name: 'cabinet-7-local-2', domain: 'agent-cabinet-7-local-2.site.example.com' });
    const [first, second] = [one, two].map((answer) => credentialIdOf(server, answer));
    const names = ['agent', 'camera'].map((label) => `${label}-cabinet-7-local.site.example.com`);
    expect(names.map((name) => mayBind(server, String(first), name))).toEqual([true, true]);
    expect(names.map((name) => mayBind(server, String(second), name))).toEqual([false, false]);
    const others = ['cabinet-7-local', 'x.agent-cabinet-7-local', 'x', '*'].map((name) => `${name}.site.example.com`);
    expect(others.map((name) => mayBind(server, String(first), name))).toEqual([false, false, false, false]);
    const acl = new AuthtokenAcl(server.store, gatewayDomains(BASE_DOMAIN));
    const mayUse = (port: number) =>
      acl.authorize(String(first), { kind: 'address', address: `tcp.gateway.test:${port}` }) === null;
    expect([19_999, 20_000, 20_009, 20_010].map(mayUse)).toEqual([false, true, true, false]);
  });

  it('never gives a name whose addresses another device could bind', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server);
    const nameFor = async (name: string) => (await join(server, { install_key: installKey(), secret, name })).body.name;
    expect(await nameFor('cabinet-7')).toBe('cabinet-7');
    expect(await nameFor('7')).toBe('7-2');
    expect(await nameFor('agent-cabinet-7')).toBe('agent-cabinet-7-3');
    expect(await nameFor('../../etc')).toBe('etc');
    expect(await nameFor('日本')).toBe('device');
    expect(String(await nameFor('x'.repeat(200)))).toHaveLength(40);
  });

  it('answers the same device and authtoken to the same installation, and counts it once', async () => {
    const server = await gateway();
    const { id, secret } = await enrolmentKey(server, { max_uses: 1 });
    const install_key = installKey();
    const first = await join(server, { install_key, secret, name: 'cam' });
    await server.call('PATCH', `/enrolment_keys/${id}`, { revoked: true });
    const again = await join(server, { install_key, secret, name: 'another' });
    expect(again.body).toEqual(first.body);
    const withoutSecret = await join(server, { install_key });
    expect(withoutSecret.body).toEqual(first.body);
    expect((await server.call('GET', `/enrolment_keys/${id}`)).body).toMatchObject({ uses: 1 });
    expect(server.store.credentials.page(null, 10)).toHaveLength(1);
  });

  it('enrols once when the same installation asks many times at once', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server);
    const request = { install_key: installKey(), secret, name: 'cam' };
    const answers = await Promise.all(Array.from({ length: 20 }, () => join(server, request)));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  });

  it('limits a device that joins in a loop, and logs its steps once a minute', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server);
    const request = { install_key: installKey(), secret, name: 'loop' };
    const answers: Answer[] = [];
    for (let count = 0; count < 40; count++) answers.push(await join(server, { ...request, name: `loop-${count}` }));
    expect(answers.slice(0, 30).map(({ status }) => status)).toEqual(Array(30).fill(200));
    const refused = answers.slice(31);
    expect(new Set(refused.map((answer) => codeOf(answer).join()))).toEqual(
      new Set(['429,ERR_GATEWAY_TOO_MANY_ENROLMENTS']),
    );
    const other = await join(server, { install_key: installKey(), secret, name: 'other' });
    expect(other.status).toBe(200);
    const logged = (msg: string) => server.logged().split(`"msg":"${msg}"`).length - 1;
    expect([logged('device enrolled'), logged('enrolment refused')]).toEqual([2, 1]);
  });

  it('keeps the first and the last steps of a device that joins again and again', async () => {
    const clock = new InstantClock();
    const server = await gateway({ clock });
    const { secret } = await enrolmentKey(server);
    const request = { install_key: installKey(), secret, name: 'loop' };
    for (let count = 0; count < 60; count++) {
      expect((await join(server, request)).status).toBe(200);
      await clock.sleep(3_000);
    }
    const [device] = server.store.devices.page(null, 10);
    expect(device?.history).toHaveLength(50);
    expect(device?.history[0]).toMatchObject({ what: 'enrolled' });
  });

  it('admits 1,200 devices a minute with one code', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server);
    // Attempts that fail count, too, and take less time than devices.
    const endpoints = () => {
      throw Object.assign(new Error(), { code: 'admitted' });
    };
    const enrolments = new Enrolments(server.store, { revoke: async () => {}, endpoints }, {} as GatewayPlace, () => 0);
    const enrol = () => enrolments.enrol({ install_key: installKey(), secret }, '127.0.0.1');
    const { database } = server.store;
    const write = database.write.bind(database);
    // A shared database runs a transaction again when another gateway has committed something meanwhile.
    database.write = async (work, caller) => {
      await write(work, caller).catch(() => {});
      return write(work, caller);
    };
    const outcomes = await Promise.allSettled(Array.from({ length: 1_203 }, enrol));
    const codes = outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason.code);
    expect(new Set(codes.slice(0, 1_200))).toEqual(new Set(['admitted']));
    expect(codes.slice(1_200)).toEqual(Array(3).fill('ERR_GATEWAY_TOO_MANY_ENROLMENTS'));
  });

  it('refuses a secret that is unknown, used up, expired or revoked, and that of an inactive site', async () => {
    let now = Date.parse('2026-03-01T00:00:00Z');
    const server = await gateway({ wallClock: () => now });
    const attempt = async (secret: string) => codeOf(await join(server, { install_key: installKey(), secret }));
    const key = await enrolmentKey(server, { max_uses: 1, expires_at: '2026-03-02T00:00:00Z' });
    expect(await attempt(`${key.secret.slice(0, -1)}!`)).toEqual([403, 'ERR_GATEWAY_CODE_UNKNOWN']);
    expect(await attempt('')).toEqual([403, 'ERR_GATEWAY_CODE_UNKNOWN']);
    expect(await attempt(key.secret)).toEqual([200, undefined]);
    expect(await attempt(key.secret)).toEqual([403, 'ERR_GATEWAY_CODE_USED_UP']);
    now += 24 * 3_600_000;
    expect(await attempt(key.secret)).toEqual([403, 'ERR_GATEWAY_CODE_EXPIRED']);
    await server.call('PATCH', `/enrolment_keys/${key.id}`, { revoked: true });
    expect(await attempt(key.secret)).toEqual([403, 'ERR_GATEWAY_CODE_REVOKED']);
    const other = await enrolmentKey(server);
    const { body } = await server.call('GET', `/enrolment_keys/${other.id}`);
    await server.call('PATCH', `/bot_users/${body.owner_id}`, { active: false });
    expect(await attempt(other.secret)).toEqual([403, 'ERR_GATEWAY_CODE_UNKNOWN']);
  });

  it('slows down guesses, and neither logs nor stores a secret', async () => {
    const clock = new InstantClock();
    const failedAttempts = { free: 2, windowMs: 60_000, delayMs: 100, maxDelayMs: 300 };
    const server = await gateway({ clock, settings: { failedAttempts } });
    const { id, secret } = await enrolmentKey(server);
    const wrong = `${secret.slice(0, -2)}zz`;
    for (let i = 0; i < 5; i += 1) await join(server, { install_key: installKey(), secret: wrong });
    expect(clock.slept).toEqual([100, 200, 300]);
    const install_key = installKey();
    const { body } = await join(server, { install_key, secret });
    const kept = JSON.stringify([server.store.devices.page(null, 9), server.store.enrolmentKeys.get(id)]);
    for (const word of [secret, install_key, String(body.authtoken)]) {
      const hidden = word.slice(-20);
      expect(server.logged()).not.toContain(hidden);
      expect(kept).not.toContain(hidden);
    }
  });

  it('waits for an approval where the key asks for one', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server, { needs_approval: true });
    const request = { install_key: installKey(), secret, name: 'cam' };
    const waiting = await join(server, request);
    expect(waiting.body).toMatchObject({ status: 'pending', authtoken: null, retry_after_s: 5 });
    await server.call('POST', `/devices/${waiting.body.device_id}/approve`);
    expect((await join(server, request)).body).toMatchObject({ status: 'enrolled', authtoken: expect.any(String) });
  });

  it('refuses devices beyond a thousand that wait for the approval of a code, but none with another code', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server, { needs_approval: true });
    const first = { install_key: installKey(), secret, name: 'cam' };
    const { body } = await join(server, first);
    await multiply(server, body.device_id, 1_000);
    const refused = await join(server, { ...first, install_key: installKey() });
    expect(codeOf(refused)).toEqual([429, 'ERR_GATEWAY_TOO_MANY_ENROLMENTS']);
    expect(refused.headers.get('retry-after')).toBe('600');
    expect((await join(server, first)).body.status).toBe('pending');
    const other = await enrolmentKey(server, { needs_approval: true });
    expect((await join(server, { ...first, install_key: installKey(), secret: other.secret })).body.status).toBe(
      'pending',
    );
    await server.call('DELETE', `/devices/${body.device_id}`);
    expect((await join(server, { ...first, install_key: installKey() })).body.status).toBe('pending');
  });

  it('refuses devices beyond 20,000 at one site, but none at another site', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server);
    const request = { install_key: installKey(), secret, name: 'cam' };
    const { body } = await join(server, request);
    await multiply(server, body.device_id, 20_000);
    const refused = await join(server, { ...request, install_key: installKey() });
    expect(codeOf(refused)).toEqual([429, 'ERR_GATEWAY_TOO_MANY_ENROLMENTS']);
    expect(refused.body.msg).toContain('the site site.example.com has 20000 devices');
    expect((await join(server, request)).status).toBe(200);
    const other = await enrolmentKey(server, { site: 'other.example.com' });
    expect((await join(server, { ...request, install_key: installKey(), secret: other.secret })).status).toBe(200);
    await server.call('DELETE', `/devices/${body.device_id}`);
    expect((await join(server, { ...request, install_key: installKey() })).status).toBe(200);
  });
});

describe('a device', () => {
  const joined = async (server: ManagementServer, name = 'cam') => {
    const { secret } = await enrolmentKey(server);
    const request = { install_key: installKey(), secret, name };
    const answer = await join(server, request);
    return { request, answer, path: `/devices/${answer.body.device_id}`, credential: credentialIdOf(server, answer) };
  };

  it('that is revoked loses its authtoken alone, and cannot join again', async () => {
    const server = await gateway();
    const one = await joined(server);
    const two = await joined(server, 'other');
    await server.call('POST', `${one.path}/revoke`);
    expect([one, two].map(({ answer }) => credentialIdOf(server, answer) !== null)).toEqual([false, true]);
    expect(server.revoked).toEqual([{ credentialIds: [one.credential] }]);
    expect(codeOf(await join(server, one.request))).toEqual([403, 'ERR_GATEWAY_DEVICE_REVOKED']);
    await server.call('DELETE', one.path);
    expect((await join(server, one.request)).body).toMatchObject({ name: 'cam' });
  });

  it('that is rotated loses its authtoken at once, and gets another one with its install key', async () => {
    const server = await gateway();
    const { request, answer, path, credential } = await joined(server);
    expect((await server.call('POST', `${path}/rotate`)).body).toMatchObject({ rotation_pending: true });
    expect(credentialIdOf(server, answer)).toBe(null);
    expect(server.revoked).toEqual([{ credentialIds: [credential] }]);
    const again = await join(server, { install_key: request.install_key, keep_name: true });
    expect([credentialIdOf(server, answer), credentialIdOf(server, again)]).toEqual([null, expect.any(String)]);
    expect((await server.call('GET', path)).body).toMatchObject({ rotation_pending: false });
    expect((await join(server, request)).body).toEqual(again.body);
  });

  it('that leaves frees its name and ends its authtoken, unless it was revoked', async () => {
    const server = await gateway();
    const leave = ({ install_key }: { install_key: string }) =>
      server.call('POST', '/enrolments/leave', { install_key }, { Authorization: '', 'Service-Version': '' });
    const one = await joined(server);
    const two = await joined(server, 'other');
    expect((await leave({ install_key: installKey() })).status).toBe(204);
    expect((await leave(one.request)).status).toBe(204);
    expect([one, two].map(({ answer }) => credentialIdOf(server, answer) !== null)).toEqual([false, true]);
    expect(server.revoked).toEqual([{ credentialIds: [one.credential] }]);
    const changes = server.store.auditLog.where('object_id = ?', [String(one.path.split('/').at(-1))]);
    expect(changes.map(({ by, type }) => `${by} ${type}`).sort()).toEqual([
      'device device_created.v0',
      'device device_deleted.v0',
    ]);
    await server.call('POST', `${two.path}/revoke`);
    expect(codeOf(await leave(two.request))).toEqual([403, 'ERR_GATEWAY_DEVICE_REVOKED']);
    expect((await server.call('GET', '/devices')).body).toMatchObject({ devices: [{ name: 'other' }] });
    expect((await joined(server)).answer.body.name).toBe('cam');
  });

  it('that is renamed keeps its old names until it joins again', async () => {
    const server = await gateway();
    const { request, path, credential } = await joined(server);
    const names = ['agent-cam.site.example.com', 'agent-door.site.example.com'];
    const { status } = await server.call('PATCH', path, { name: 'door', labels: { floor: '2' } });
    expect(status).toBe(200);
    expect(names.map((name) => mayBind(server, credential, name))).toEqual([true, true]);
    const other = await joined(server, 'cam');
    expect(other.answer.body.name).toBe('cam-2');
    expect(codeOf(await server.call('PATCH', other.path, { name: 'front-door' }))).toEqual([
      400,
      'ERR_GATEWAY_DEVICE_STATE',
    ]);
    expect((await join(server, request)).body).toMatchObject({ name: 'door', domain: 'agent-door.site.example.com' });
    expect(names.map((name) => mayBind(server, credential, name))).toEqual([false, true]);
    expect(server.revoked).toEqual([{ narrowedId: credential }]);
  });

  it('that joins with a code for another site moves there: with its history, without what it had', async () => {
    const server = await gateway();
    const { secret } = await enrolmentKey(server, { tcp_ports: '20000-20009' });
    const other = await enrolmentKey(server, { site: '*.other.example.com', max_uses: 2 });
    const { secret: waiting } = await enrolmentKey(server, { site: '*.third.example.com', needs_approval: true });
    const body = { install_key: installKey(), name: 'cam' };
    await join(server, { install_key: installKey(), secret: other.secret, name: 'cam' });
    const before = await join(server, { ...body, secret });
    const id = String(before.body.device_id);
    const { store } = server;
    await store.database.write(() =>
      store.siteNames.put({ hostname: 'door.site.example.com', device_id: id, released_from: null }),
    );
    const [former] = [credentialIdOf(server, before)];
    const moved = await join(server, { ...body, secret: other.secret });
    expect(moved.body).toMatchObject({
      ...{ status: 'enrolled', device_id: id, name: 'cam-2', site: 'other.example.com' },
      domain: 'agent-cam-2.other.example.com',
    });
    expect(credentialIdOf(server, before)).toBe(null);
    expect(server.revoked).toContainEqual({ credentialIds: [former] });
    const own = credentialIdOf(server, moved);
    const names = ['agent-cam-2.other.example.com', 'agent-cam.site.example.com', 'door.site.example.com'];
    expect(names.map((name) => mayBind(server, own, name))).toEqual([true, false, false]);
    expect(store.credentials.get(String(own))?.acl.join()).not.toContain('20000');
    expect(store.siteNames.labelsOf(id)).toEqual([]);
    expect(store.devices.get(id)?.history.map(({ what }) => what)).toEqual(['enrolled', 'moved', 'joined again']);
    const changes = store.auditLog.where("object_id = ? AND type = 'device_updated.v0'", [id]);
    expect(changes.map(({ by }) => by)).toContain('device');
    // Repeated after a power cut, and renewed without a code.
    for (const again of [
      { ...body, secret: other.secret },
      { install_key: body.install_key, keep_name: true },
    ])
      expect((await join(server, again)).body).toMatchObject({ authtoken: moved.body.authtoken, name: 'cam-2' });
    expect(store.enrolmentKeys.get(other.id)?.uses).toBe(2);

    const back = await join(server, { ...body, secret: waiting });
    expect(back.body).toMatchObject({ status: 'pending', site: 'third.example.com', authtoken: null });
    expect(credentialIdOf(server, moved)).toBe(null);
    // A code that is used up takes nobody away, and a wrong one neither.
    expect(codeOf(await join(server, { ...body, secret: other.secret }))).toEqual([403, 'ERR_GATEWAY_CODE_USED_UP']);
    const wrong = other.secret.slice(0, -2);
    expect(codeOf(await join(server, { ...body, secret: wrong }))).not.toEqual([201, undefined]);
    expect(store.devices.get(id)?.site).toBe('third.example.com');
  });

  it('is listed with its session, its tunnels and its history', async () => {
    const sessions: Record<string, string>[] = [];
    const common = { id: 'ts_1', ip: '203.0.113.7', startedAt: '2026-03-01T00:00:00Z' };
    const live = {
      sessions: () => sessions as never,
      tunnels: () =>
        [{ sessionId: 'ts_1', publicUrl: 'https://a', forwardsTo: 'http://localhost:80', startedAt: 'x' }] as never,
    };
    const server = await gateway({ live });
    const { path, credential } = await joined(server);
    expect((await server.call('GET', path)).body).toMatchObject({ online_since: null, tunnels: [], ip: null });
    sessions.push({ ...common, credentialId: String(credential), agentVersion: 'device-agent/1' });
    expect((await server.call('GET', '/devices')).body).toMatchObject({
      devices: [
        {
          online_since: common.startedAt,
          ip: common.ip,
          agent_version: 'device-agent/1',
          tunnels: [{ public_url: 'https://a' }],
          history: [{ what: 'enrolled', by: '127.0.0.1', at: expect.any(String) }],
        },
      ],
    });
  });

  it('is named by its session and its endpoints', async () => {
    const sessions: LiveSession[] = [];
    const endpoints: LiveEndpoint[] = [];
    const server = await gateway({ live: { sessions: () => sessions, endpoints: () => endpoints } });
    const { path, credential: credentialId } = await joined(server);
    sessions.push({ ...SESSION, credentialId });
    endpoints.push({ ...ENDPOINT, credentialId });
    const device = { id: path.split('/').at(-1), uri: expect.stringContaining(path), name: 'cam' };
    expect((await server.call('GET', '/tunnel_sessions')).body).toMatchObject({ tunnel_sessions: [{ device }] });
    expect((await server.call('GET', `/endpoints/${ENDPOINT.id}`)).body).toMatchObject({ device });
    sessions[0] = { ...SESSION, credentialId: 'cr_other' };
    expect((await server.call('GET', '/tunnel_sessions')).body).toMatchObject({ tunnel_sessions: [{ device: null }] });
  });
});

describe('POST /enrolment_keys', () => {
  it('reserves the site, keeps one bot user for it, and shows the code once', async () => {
    const server = await gateway();
    const first = await server.call('POST', '/enrolment_keys', { site: '*.Site-B.example.com', max_uses: 2 });
    const second = await server.call('POST', '/enrolment_keys', { site: 'site-b.example.com' });
    expect(second.body.owner_id).toBe(first.body.owner_id);
    expect(server.store.reservedDomains.byName('*.site-b.example.com')).toMatchObject({ policy: expect.anything() });
    expect((await server.call('GET', `/enrolment_keys/${first.id}`)).body).toMatchObject({ code: null, uses: 0 });
    const code = parseJoinCode(String(first.body.code));
    expect(code).toMatchObject({ origin: 'https://api.gateway.test', isPublic: false });
    expect(code?.pin).toHaveLength(32);
    expect((await join(server, { install_key: installKey(), secret: code?.secret })).status).toBe(200);
  });

  it.each(['api.gateway.test', 'test', 'a b.example.com', '*.*.example.com'])('refuses the site %j', async (site) => {
    const server = await gateway();
    expect((await server.call('POST', '/enrolment_keys', { site })).status).toBe(400);
  });
});
