import { beforeEach, expect, it } from 'vitest';
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

it('changes by devices, agents and people push out older ones of theirs, never those of operators', async () => {
  await create('/ip_policies', {});
  const { auditLog, database, ids } = server.store;
  const before = auditLog.find({}, { before: null }, 1_000);
  auditLog.keepFor(90, 150);
  for (let change = 0; change < 700; change++) {
    const row = { id: ids.next('dev') };
    await database.write(() => database.noteChange({ table: 'devices', before: null, after: row }), {
      by: ['device', 'cr_1', 'prs_1'][change % 3] ?? '',
      from: null,
    });
  }
  auditLog.keepFor(90);
  const after = auditLog.find({}, { before: null }, 1_000);
  const isOfOperator = ({ by }: { by: string }) => by.startsWith('ak_');
  expect(after.filter(isOfOperator)).toEqual(before.filter(isOfOperator));
  const others = after.filter((row) => !isOfOperator(row));
  expect(others.length).toBeGreaterThanOrEqual(150);
  expect(others.length).toBeLessThan(300);
});
