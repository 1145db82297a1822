import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { allOperations } from '../../../src/management/operations.ts';
import { fuzz } from '../../support/fuzz.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

/** Members of real operations, so that random bodies pass the first check. */
const MEMBERS = [
  'name',
  'active',
  'domain',
  'region',
  'description',
  'metadata',
  'certificate_id',
  'certificate_management_policy',
  'authority',
  'private_key_type',
  'hostports',
  'backend',
  'backend_id',
  'enabled',
  'ip_restriction',
  'ip_policy_ids',
  'mutual_tls',
  'certificate_authority_ids',
  'tls_termination',
  'terminate_at',
  'min_version',
  'traffic_policy',
  'value',
  'acl',
  'owner_id',
  'cidr',
  'ip_policy_id',
  'action',
  'labels',
  'headers',
  'body',
  'status_code',
  'ca_pem',
  'certificate_pem',
  'private_key_pem',
  'type',
  'id',
  'module',
  '__proto__',
  'constructor',
];
const VALUES = [
  'a.example.com',
  '*.b.example.com:443',
  'letsencrypt',
  'rsa',
  'edge',
  'upstream',
  '1.2',
  'bind:*.example.com',
  'bot_x',
  'bkdhr_x',
  'ipp_x',
  'ca_x',
  'cert_x',
  'ec_x',
  '10.0.0.0/8',
  'allow',
  '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----',
  '{}',
  '\u0000',
  '\ud800',
];
const { value: anyJson } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', maxDepth: 3 },
    fc.constantFrom<unknown>(...VALUES, null, true, false, 0, -1, 1e308, 443, '', 'x'.repeat(5000)),
    fc.string(),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.oneof(fc.constantFrom(...MEMBERS), fc.string()), tie('value'), { maxKeys: 5 }),
  ),
}));
const anyBody = fc.dictionary(fc.constantFrom(...MEMBERS), anyJson, { maxKeys: 4 });

describe('any JSON body', () => {
  it('is accepted or refused, and never an internal error', async () => {
    const withBody = allOperations().filter(({ operation }) => operation.body !== null);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...withBody), fc.oneof(anyBody, anyJson), async ({ operation }, body) => {
        const { id } = await server.call('POST', '/edges/tls');
        const path = operation.path.replace('{id}', operation.path.startsWith('/edges') ? id : 'x');
        const answer = await server.call(operation.method, path, body === undefined ? null : body);
        expect(answer.status).toBeLessThan(500);
      }),
      fuzz(300),
    );
  });

  it('in an update is applied completely or not at all', async () => {
    const domain = await server.call('POST', '/reserved_domains', { domain: 'property.example.com' });
    const edge = await server.call('POST', '/edges/tls', { description: 'd', hostports: ['property.example.com:443'] });
    const bot = await server.call('POST', '/bot_users', { name: 'property' });
    const paths = [`/reserved_domains/${domain.id}`, `/edges/tls/${edge.id}`, `/bot_users/${bot.id}`];
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), anyBody, async (path, body) => {
        const before = await server.call('GET', path);
        const answer = await server.call('PATCH', path, body);
        const after = await server.call('GET', path);
        expect(after.body).toEqual(answer.status === 200 ? answer.body : before.body);
      }),
      fuzz(150),
    );
    expect(server.store.database.problems()).toEqual([]);
  });
});

describe('modules', () => {
  it('keep their last value in any order of updates', async () => {
    const enabled = fc.boolean();
    const update = fc.record(
      {
        tls_termination: fc.record({
          enabled,
          terminate_at: fc.constant('edge'),
          min_version: fc.constantFrom('1.2', '1.3'),
        }),
        traffic_policy: fc.record({ enabled, value: fc.constantFrom('{}', '{"on_tcp_connect":[]}') }),
        description: fc.string({ maxLength: 50 }),
      },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(update, { minLength: 1, maxLength: 6 }), async (updates) => {
        const { id, body } = await server.call('POST', '/edges/tls');
        let expected = body;
        for (const change of updates) {
          expected = { ...expected, ...change };
          expect((await server.call('PATCH', `/edges/tls/${id}`, change)).body).toEqual(expected);
        }
      }),
      { numRuns: 25 },
    );
  });
});

describe('pages', () => {
  it('skip and repeat nothing during concurrent changes', async () => {
    const all = await startManagementServer();
    const stable: string[] = [];
    const doomed: string[] = [];
    // At most one new item for each page: otherwise, pages of one item would never end.
    let more = 100;
    for (let i = 0; i < 60; i += 1) {
      const { id } = await all.call('POST', '/bot_users');
      (i % 3 === 0 ? doomed : stable).push(id);
    }
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 25 }), async (limit) => {
        const seen: string[] = [];
        let uri: string | null = `/bot_users?limit=${limit}`;
        while (uri !== null) {
          const page = await all.call('GET', uri);
          const items = page.body.bot_users as { id: string }[];
          expect(items.length).toBeGreaterThan(0);
          seen.push(...items.map(({ id }) => id));
          const next = page.body.next_page_uri as string | null;
          if (next !== null) {
            expect(items).toHaveLength(limit);
            // This may delete the item that the next page starts after.
            const last = String(items.at(-1)?.id);
            if (doomed.includes(last)) await all.call('DELETE', `/bot_users/${last}`);
            if (more-- > 0) await all.call('POST', '/bot_users');
          }
          uri = next?.replace('https://api.gateway.test', '') ?? null;
        }
        expect(seen).toEqual(seen.toSorted().toReversed());
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen).toEqual(expect.arrayContaining(stable));
      }),
      { numRuns: 10 },
    );
    await all.close();
  }, 300_000);

  it('end exactly: a full last page has no next page, an empty list is []', async () => {
    const all = await startManagementServer();
    expect((await all.call('GET', '/bot_users')).body).toEqual({
      bot_users: [],
      uri: 'https://api.gateway.test/bot_users',
      next_page_uri: null,
    });
    const ids: string[] = [];
    for (let i = 0; i < 4; i += 1) ids.push((await all.call('POST', '/bot_users')).id);
    const first = await all.call('GET', '/bot_users?limit=2');
    expect(first.body.next_page_uri).toBe(`https://api.gateway.test/bot_users?before_id=${ids[2]}&limit=2`);
    const second = await all.call('GET', `/bot_users?limit=2&beforeId=${ids[2]}`);
    expect(second.body.bot_users).toMatchObject([{ id: ids[1] }, { id: ids[0] }]);
    expect(second.body.next_page_uri).toBeNull();
    await all.close();
  });

  it('have at most 100 items, also by default', async () => {
    const all = await startManagementServer();
    const { store } = all;
    await store.database.write(() => {
      for (let i = 0; i < 101; i += 1) {
        store.botUsers.insert({ id: store.ids.next('bot'), created_at: store.now(), name: '', active: true });
      }
    });
    const { body } = await all.call('GET', '/bot_users');
    expect(body.bot_users).toHaveLength(100);
    expect(body.next_page_uri).toMatch(/&limit=100$/);
    await all.close();
  });
});
