import { expect, it, onTestFinished } from 'vitest';
import type { PolicyHolder } from '../../../src/gateway/endpoints/endpoint-policies.ts';
import { PolicyWatch } from '../../../src/gateway/events/policy-watch.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { DatabaseUnwritable } from '../../../src/gateway/store/sql/database-problems.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import { agentSession, makeDataDir, startTestGateway } from '../../support/gateway.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const policyOf = (password: string) =>
  JSON.stringify({
    on_http_request: [{ actions: [{ type: 'basic-auth', config: { credentials: [`a:${password}`] } }] }],
  });

function openStore(dataDir = temporaryFolder()): Store {
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  onTestFinished(() => store.database.close());
  return store;
}

const CAMERA: PolicyHolder = {
  ...{ url: 'https://camera.example.com', pooled: false, credentialId: 'cr_1', address: '192.0.2.1' },
  access: ['password'],
};

/** Binds endpoints one after another, and waits until all is written. */
async function bound(
  store: Store,
  ...binds: readonly [holder: Partial<PolicyHolder>, source: string][]
): Promise<void> {
  for (const [holder, source] of binds) {
    const watch = new PolicyWatch(store, silentLog);
    watch.note({ ...CAMERA, ...holder }, source);
    await watch.stop();
  }
}

const changes = (store: Store) => store.auditLog.find({ type: 'endpoint_policy' }, { after: '' }, 1_000);

it('an agent that binds with another policy than before is in the audit log, with who may come in now', async () => {
  const dataDir = await makeDataDir();
  const gateway = await startTestGateway({ dataDir });
  const bind = async (password: string | null, changed: string | null = null) => {
    const session = await agentSession(gateway).connect();
    const builder = session.httpEndpoint().domain('camera.localhost');
    if (password !== null) builder.trafficPolicy(policyOf(password));
    if (changed !== null) builder.basicAuth('anna', changed);
    const listener = await builder.listen(false);
    // One under a name that the gateway chooses is another one each time.
    await session.httpEndpoint().listen(false);
    await listener.close();
    await session.close();
  };
  for (const password of ['open-sesame', 'open-sesame', 'swordfish-2', null]) await bind(password);
  await bind(null, 'swordfish-3');
  await bind(null, 'swordfish-3');
  await gateway.close();
  const store = openStore(dataDir);
  const common = {
    object_id: 'https://camera.localhost:',
    by: expect.stringMatching(/^cr_/),
    from_address: '127.0.0.1',
  };
  const found = changes(store);
  expect(found).toMatchObject([
    { before: { access: ['password'] }, after: { access: ['password'] } },
    { before: { access: ['password'] }, after: { access: ['everyone'] } },
    { before: { access: ['everyone'] }, after: { access: ['password'] } },
  ]);
  for (const event of found) {
    expect(event).toMatchObject({
      ...common,
      type: 'endpoint_policy_updated.v0',
      object_id: expect.stringContaining('camera'),
    });
    expect(event.before?.policy_digest).not.toBe(event.after?.policy_digest);
  }
  expect(JSON.stringify(found)).not.toMatch(/sesame|swordfish/);
  expect(store.boundPolicies.count('id > ?', [''])).toBe(1);
});

it('endpoints that come back after a restart with the policies that they had write nothing', async () => {
  const dataDir = temporaryFolder();
  const first = openStore(dataDir);
  const fleet = Array.from({ length: 50 }, (_, at) => ({ ...CAMERA, url: `https://camera-${at}.example.com` }));
  await bound(first, ...fleet.map((holder): [PolicyHolder, string] => [holder, 'first']));
  first.database.close();
  const store = openStore(dataDir);
  const before = store.database.commits;
  await bound(store, ...fleet.map((holder): [PolicyHolder, string] => [holder, 'first']));
  expect(store.database.commits).toBe(before);
  expect(changes(store)).toEqual([]);
});

it('changes of an update count as well, one after another', async () => {
  const store = openStore();
  const watch = new PolicyWatch(store, silentLog);
  for (const source of ['first', 'second', 'second', 'first']) watch.note(CAMERA, source);
  await watch.stop();
  expect(changes(store)).toHaveLength(2);
});

it('members of a pool may have several policies, but no new one unnoticed', async () => {
  const store = openStore();
  const pool = { pooled: true };
  await bound(store, [pool, 'one'], [pool, 'two'], [pool, 'one'], [pool, 'two']);
  expect(changes(store)).toHaveLength(1);
  await bound(store, [pool, 'three'], [{ pooled: false }, 'one']);
  expect(changes(store)).toHaveLength(3);
});

it('an authtoken with ever new policies writes no more than its share, and takes nothing from others', async () => {
  const store = openStore();
  await bound(store, [{}, 'first'], [{ url: 'https://other.example.com', credentialId: 'cr_2' }, 'first']);
  const watch = new PolicyWatch(store, silentLog);
  for (let at = 0; at < 2_000; at++) watch.note(CAMERA, `policy ${at}`);
  watch.note({ ...CAMERA, url: 'https://other.example.com', credentialId: 'cr_2' }, 'second');
  await watch.stop();
  const by = (id: string) => changes(store).filter((event) => event.by === id).length;
  expect([by('cr_1'), by('cr_2')]).toEqual([500, 1]);
  const before = store.database.commits;
  watch.note(CAMERA, 'one more');
  await watch.stop();
  expect(store.database.commits).toBe(before);
});

it('a database that cannot be written neither fails nor delays a bind; the change is recorded later', async () => {
  const store = openStore();
  await bound(store, [{}, 'first']);
  const { database } = store;
  const write = database.write.bind(database);
  database.write = () => Promise.reject(new DatabaseUnwritable('the disk', 'disk full', 'make room'));
  const watch = new PolicyWatch(store, silentLog);
  watch.note(CAMERA, 'second');
  await watch.stop();
  database.write = write;
  expect(changes(store)).toEqual([]);
  await watch.stop();
  expect(changes(store)).toHaveLength(1);
});

it('an authtoken with too many endpoints pushes out its own oldest ones', async () => {
  const { database, now } = openStore();
  const { BoundPolicies } = await import('../../../src/gateway/store/bound-policies.ts');
  const policies = new BoundPolicies(database, 300);
  const put = (credential_id: string, id: string) =>
    policies.put({ id, created_at: now(), credential_id, policy_digest: '', access: [] }, false);
  await database.write(() => {
    for (let at = 0; at < 100; at++) put('cr_1', `https://mine-${at}`);
    for (let at = 0; at < 900; at++) put('cr_2', `https://other-${at}`);
  });
  expect(policies.count('credential_id = ?', ['cr_1'])).toBe(100);
  expect(policies.count('id > ?', [''])).toBeLessThanOrEqual(400);
});
