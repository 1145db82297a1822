import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { storeOn } from '../../../src/gateway/store/store.ts';
import { SecretsBox } from '../../../src/lib/secrets-box.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';

const POLICY = JSON.stringify({
  on_http_request: [{ actions: [{ type: 'basic-auth', config: { credentials: ['anna:open-sesame'] } }] }],
});

let server: ManagementServer;

beforeEach(async () => {
  server = await startManagementServer();
  return () => server.close();
});

const log = () => server.store.auditLog.page(null, 100).reverse();

async function create(path: string, body: object): Promise<string> {
  const { status, body: answer } = await server.call('POST', path, body);
  expect(status).toBe(201);
  return String(answer.id);
}

it('records who has created, changed and deleted what, from where, without secrets', async () => {
  const credential = await create('/credentials', { description: 'first' });
  await server.call('PATCH', `/credentials/${credential}`, { description: 'second' });
  await server.call('DELETE', `/credentials/${credential}`);
  const by = server.apiKey.split('_')[0];
  const common = { object_id: credential, by: `ak_${by}`, from_address: expect.stringContaining('127.0.0.1') };
  expect(log()).toMatchObject([
    { ...common, type: 'tunnel_credential_created.v0', before: null, after: { description: 'first' } },
    {
      ...common,
      type: 'tunnel_credential_updated.v0',
      before: { description: 'first' },
      after: { description: 'second' },
    },
    { ...common, type: 'tunnel_credential_deleted.v0', before: { description: 'second' }, after: null },
  ]);

  const vault = await create('/vaults', { name: 'cameras' });
  await create('/vault_secrets', { vault_id: vault, name: 'password', value: 'open-sesame' });
  await create('/endpoints', { type: 'cloud', url: 'https://a.gateway.test', traffic_policy: POLICY });
  const text = JSON.stringify(log());
  expect(text).not.toContain('open-sesame');
  expect(text).not.toMatch(/secret_hash|private_key|"value"/);
});

it('records nothing of a change that is refused, and what the gateway does by itself', async () => {
  expect((await server.call('POST', '/reserved_domains', { domain: 'gateway.test' })).status).toBe(400);
  await server.store.database.write(() =>
    server.store.botUsers.insert({ id: 'bot_1', created_at: '', name: 'a', active: true }),
  );
  expect(log()).toEqual([]);
});

it('lists changes by type, object, key and time, page by page', async () => {
  const [first, second] = [await create('/ip_policies', {}), await create('/ip_policies', {})];
  await server.call('DELETE', `/ip_policies/${second}`);
  const before = new Date(Date.now() - 60_000).toISOString();
  const found = async (query: string) =>
    ((await server.call('GET', `/audit_events?${query}`)).body.audit_events as { object_id: string }[]).map(
      ({ object_id }) => object_id,
    );
  expect(await found('')).toEqual([second, second, first]);
  expect(await found('type=ip_policy')).toEqual([second, second, first]);
  expect(await found('type=ip_policy_deleted.v0')).toEqual([second]);
  expect(await found('type=ip')).toEqual([]);
  expect(await found(`object_id=${first}`)).toEqual([first]);
  expect(await found('by=gateway')).toEqual([]);
  expect(await found(`since=${before}`)).toHaveLength(3);
  expect(await found(`until=${before}`)).toEqual([]);
  const { body } = await server.call('GET', '/audit_events?type=ip_policy&limit=2');
  const next = new URL(String(body.next_page_uri));
  expect(next.searchParams.get('type')).toBe('ip_policy');
  expect(await found(next.search.slice(1))).toEqual([first]);
  for (const [query, code] of [
    ['since=yesterday', 215],
    [`by=${'a'.repeat(101)}`, 215],
    ['toString=1', 231],
    ['type=a&type=b', 232],
  ]) {
    const refused = await server.call('GET', `/audit_events?${query}`);
    expect([refused.status, refused.body.error_code]).toEqual([400, `ERR_NGROK_${code}`]);
  }
});

it('forgets what is older than 90 days with the next change', async () => {
  const policy = await create('/ip_policies', {});
  const [entry] = log();
  if (!entry) throw new Error('nothing was recorded');
  const old = { ...entry, id: 'evt_0', created_at: new Date(Date.now() - 91 * 86_400_000).toISOString() };
  await server.store.database.write(() => server.store.auditLog.insert(old));
  await server.call('DELETE', `/ip_policies/${policy}`);
  expect(log().map(({ type }) => type)).toEqual(['ip_policy_created.v0', 'ip_policy_deleted.v0']);
});

const policyOf = (password: string, status = 403) =>
  JSON.stringify({
    on_http_request: [
      { actions: [{ type: 'basic-auth', config: { credentials: [`anna:${password}`] } }] },
      { actions: [{ type: 'deny', config: { status_code: status } }] },
    ],
  });
const latest = (object: string) => server.store.auditLog.find({ object_id: object }, { before: null }, 1)[0];
const eventOf = async (object: string) => (await server.call('GET', `/audit_events/${latest(object)?.id}`)).body;

it('shows what has changed in a policy, with its secrets masked, and keeps the texts encrypted', async () => {
  const url = 'https://a.gateway.test';
  const id = await create('/endpoints', { type: 'cloud', url, traffic_policy: policyOf('open-sesame') });
  expect((await eventOf(id)).policy_difference).toContain('+      - anna:[masked]');
  await server.call('PATCH', `/endpoints/${id}`, { traffic_policy: policyOf('swordfish-2', 404) });
  const event = await eventOf(id);
  expect(event.before).not.toEqual(event.after);
  expect(String(event.policy_difference).split('\n')).toEqual([
    '@@ -3,8 +3,8 @@',
    '   - type: basic-auth',
    '     config:',
    '       credentials:',
    '-      - anna:[masked]',
    '+      - anna:[masked, changed]',
    ' - actions:',
    '   - type: deny',
    '     config:',
    '-      status_code: 403',
    '+      status_code: 404',
  ]);
  const { body: list } = await server.call('GET', `/audit_events?object_id=${id}`);
  expect(JSON.stringify(list)).not.toContain('policy_difference');

  await server.call('PATCH', `/endpoints/${id}`, { description: 'no other policy' });
  expect(await eventOf(id)).not.toHaveProperty('policy_difference');
  await server.call('DELETE', `/endpoints/${id}`);
  expect((await eventOf(id)).policy_difference).toContain('-      - anna:[masked]');

  const files = ['gateway.db', 'gateway.db-wal'].map((name) => readFileSync(join(server.folder, name), 'latin1'));
  const stored = files.join('').replaceAll(/anna:(open-sesame|swordfish-2)"\]/g, 'in the endpoint itself');
  expect(stored).not.toMatch(/open-sesame|swordfish/);
});

it('undoes a change of a policy, which is a change of its own', async () => {
  const url = 'https://a.gateway.test';
  const [first, second] = [policyOf('open-sesame'), policyOf('swordfish-2')];
  const id = await create('/endpoints', { type: 'cloud', url, traffic_policy: first });
  const created = latest(id)?.id;
  await server.call('PATCH', `/endpoints/${id}`, { traffic_policy: second });
  const changed = latest(id)?.id;
  await server.call('PATCH', `/endpoints/${id}`, { description: 'stays' });
  const described = latest(id)?.id;

  const { status, body } = await server.call('POST', `/audit_events/${changed}/undo`);
  expect([status, body.id]).toEqual([200, latest(id)?.id]);
  const by = `ak_${server.apiKey.split('_')[0]}`;
  expect(body).toMatchObject({ type: 'endpoint_updated.v0', object_id: id, by });
  expect(body.policy_difference).toContain('+      - anna:[masked, changed]');
  expect((await server.call('GET', `/endpoints/${id}`)).body).toMatchObject({
    traffic_policy: first,
    description: 'stays',
  });

  const refused = async (event: unknown) => {
    const { status: code, body: problem } = await server.call('POST', `/audit_events/${event}/undo`);
    return [code, problem.error_code, problem.msg];
  };
  expect(await refused(changed)).toEqual([
    400,
    'ERR_GATEWAY_POLICY_CHANGED_SINCE',
    expect.stringContaining(`has been changed since by ${body.id}`),
  ]);
  expect(await refused(created)).toEqual([400, 'ERR_GATEWAY_NOTHING_TO_UNDO', expect.stringContaining('delete the')]);
  expect(await refused(described)).toEqual([400, 'ERR_GATEWAY_NOTHING_TO_UNDO', expect.stringContaining('no traffic')]);
  expect((await refused(`evt_${'0'.repeat(27)}`))[0]).toBe(404);
  // Undoing that undoes it is possible, too.
  expect((await server.call('POST', `/audit_events/${body.id}/undo`)).status).toBe(200);
  expect((await server.call('GET', `/endpoints/${id}`)).body.traffic_policy).toBe(second);

  const undone = latest(id)?.id;
  await server.call('DELETE', `/endpoints/${id}`);
  for (const event of [undone, latest(id)?.id])
    expect(await refused(event)).toEqual([
      400,
      'ERR_GATEWAY_OBJECT_GONE',
      expect.stringContaining(`${id} was deleted`),
    ]);
});

it('undoes changes of the policy of a TLS edge, also one that removed it, unless it could not run any more', async () => {
  const ipPolicy = await create('/ip_policies', {});
  const value = JSON.stringify({
    on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { ip_policies: [ipPolicy] } }] }],
  });
  const id = await create('/edges/tls', {});
  const module = `/edges/tls/${id}/traffic_policy`;
  await server.call('PUT', module, { enabled: false, value });
  await server.call('DELETE', module);
  const removed = latest(id)?.id;
  expect((await server.call('POST', `/audit_events/${removed}/undo`)).status).toBe(200);
  expect((await server.call('GET', module)).body).toEqual({ enabled: false, value });
  expect((await server.call('POST', `/audit_events/${latest(id)?.id}/undo`)).status).toBe(200);
  await server.call('DELETE', `/ip_policies/${ipPolicy}`);
  // Its policy is again what it was after the change: it has been changed all the same.
  const { status, body } = await server.call('POST', `/audit_events/${removed}/undo`);
  expect([status, body.details]).toEqual([400, expect.objectContaining({ later_event: latest(id)?.id })]);
  const again = await server.call('POST', `/audit_events/${latest(id)?.id}/undo`);
  expect([again.status, String(again.body.msg)]).toEqual([400, expect.stringContaining('traffic_policy: ')]);
  expect((await server.call('GET', module)).status).toBe(404);
});

it('keeps a long policy once for each change, and nothing readable without the encryption key', async () => {
  const random = (from: number) =>
    Array.from({ length: 2_000 }, (_, at) =>
      createHash('md5')
        .update(String(from + at))
        .digest('hex')
        .slice(0, 24),
    );
  const long = (from: number, more: string[]) =>
    JSON.stringify({
      on_http_request: [
        { actions: [{ type: 'log', config: { metadata: { a: [...random(from), ...more].join(' ') } } }] },
      ],
    });
  const url = 'https://a.gateway.test';
  const id = await create('/endpoints', { type: 'cloud', url, traffic_policy: long(0, []) });
  await server.call('PATCH', `/endpoints/${id}`, { traffic_policy: long(0, ['one more']) });
  const { auditLog, database } = server.store;
  const size = () =>
    Number(database.values('SELECT length(policies) FROM audit_log WHERE id = ?', [latest(id)?.id ?? ''])?.[0]);
  expect(size()).toBeLessThan(0.7 * long(0, []).length);
  expect(auditLog.policyChange(latest(id)?.id ?? '')?.after).toBe(long(0, ['one more']));

  const other = storeOn(database, new SecretsBox(randomBytes(32)));
  expect(other.auditLog.policyChange(latest(id)?.id ?? '')).toBeNull();
});

it('changes by devices, agents and people push out older ones of theirs, never those of operators', async () => {
  await create('/ip_policies', {});
  const { auditLog, database, ids } = server.store;
  const before = auditLog.find({}, { before: null }, 1_000);
  auditLog.keepFor(90, 150);
  for (const by of ['device', 'cr_1', 'prs_1', 'device', 'cr_1', 'prs_1', 'device']) {
    const note = () => database.noteChange({ table: 'devices', before: null, after: { id: ids.next('dev') } });
    await database.write(() => Array.from({ length: 100 }, note), { by, from: null });
  }
  auditLog.keepFor(90);
  const after = auditLog.find({}, { before: null }, 1_000);
  const isOfOperator = ({ by }: { by: string }) => by.startsWith('ak_');
  expect(after.filter(isOfOperator)).toEqual(before.filter(isOfOperator));
  const others = after.filter((row) => !isOfOperator(row));
  expect(others.length).toBeGreaterThanOrEqual(150);
  expect(others.length).toBeLessThan(300);
});
