/**
 * Every operation of the management API: the answer to a valid request, and the refusals that all operations share.
 * The refusals of one resource are in the test file of that resource, under the name of the operation.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { recordSignIns } from '../../../src/gateway/sign-in/recorded-sign-ins.ts';
import { allOperations, type OPERATIONS, type Operation } from '../../../src/management/operations.ts';
import { beginning } from '../../support/begun-sign-in.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { BASE_DOMAIN, type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { ENDPOINT, SESSION, SHARED, TUNNEL } from '../../support/online-agent.ts';

/** The resources that bodies refer to. */
interface Fixtures {
  /** A different number in every body. */
  n: number;
  backendId: string;
  ipPolicyId: string;
  caId: string;
  caPem: string;
  leafPem: string;
  leafKeyPem: string;
  vaultId: string;
  deviceId: string;
}
type Body = (fixtures: Fixtures) => Record<string, unknown>;

type Operations = typeof OPERATIONS;
type OperationsWithBody<Family> = {
  [Name in keyof Family as Family[Name] extends Operation<null> ? never : Name]: Body;
};

/** A valid body for every operation that takes one; an operation without one does not compile. */
const BODIES: { [Family in keyof Operations]: OperationsWithBody<Operations[Family]> } = {
  reservedDomains: {
    create: ({ n }) => ({ domain: `d${n}.example.com`, certificate_management_policy: { authority: 'letsencrypt' } }),
    update: () => ({ description: 'second' }),
  },
  tlsEdges: {
    create: ({ n }) => ({ hostports: [`d${n}.example.com:443`] }),
    update: () => ({ description: 'second' }),
  },
  tlsEdgeBackend: { replace: ({ backendId }) => ({ backend_id: backendId }) },
  tlsEdgeIpRestriction: { replace: ({ ipPolicyId }) => ({ ip_policy_ids: [ipPolicyId] }) },
  tlsEdgeMutualTls: { replace: ({ caId }) => ({ certificate_authority_ids: [caId] }) },
  tlsEdgeTlsTermination: { replace: () => ({ terminate_at: 'edge', min_version: '1.3' }) },
  tlsEdgeTrafficPolicy: { replace: () => ({ value: '{}' }) },
  botUsers: { create: () => ({ name: 'site' }), update: () => ({ active: false }) },
  serviceUsers: { create: () => ({ name: 'site' }), update: () => ({ active: false }) },
  httpResponseBackends: { create: () => ({ body: 'closed' }), update: () => ({ status_code: 503 }) },
  tunnelGroupBackends: { create: () => ({ labels: { app: 'web' } }), update: () => ({ labels: { app: 'db' } }) },
  ipPolicies: { create: () => ({ description: 'office' }), update: () => ({ description: 'second' }) },
  ipPolicyRules: {
    create: ({ ipPolicyId, n }) => ({ ip_policy_id: ipPolicyId, action: 'allow', cidr: `2001:db8:${n}::/48` }),
    update: () => ({ description: 'second' }),
  },
  ipRestrictions: {
    create: ({ ipPolicyId }) => ({ type: 'endpoints', ip_policy_ids: [ipPolicyId] }),
    update: () => ({ description: 'second' }),
  },
  certificateAuthorities: {
    create: ({ caPem }) => ({ ca_pem: caPem }),
    update: () => ({ description: 'second' }),
  },
  tlsCertificates: {
    create: ({ leafPem, leafKeyPem }) => ({ certificate_pem: leafPem, private_key_pem: leafKeyPem }),
    update: () => ({ description: 'second' }),
  },
  credentials: { create: () => ({ acl: ['bind:*.example.com'] }), update: () => ({ acl: [] }) },
  apiKeys: { create: () => ({ description: 'ci' }), update: () => ({ description: 'second' }) },
  endpointConfigurations: { create: () => ({ type: 'http' }), update: () => ({ description: 'second' }) },
  enrolmentKeys: { create: () => ({ site: '*.example.com' }), update: () => ({ revoked: true }) },
  devices: { update: ({ n }) => ({ name: `cabinet-${n}` }) },
  vaults: { create: ({ n }) => ({ name: `v${n}` }), update: () => ({ description: 'second' }) },
  secrets: {
    create: ({ vaultId, n }) => ({ vault_id: vaultId, name: `s${n}`, value: 'hidden' }),
    update: () => ({ value: 'other' }),
  },
  people: {
    create: ({ n }) => ({ email: `p${n}@example.com` }),
    update: () => ({ name: 'second', groups: ['family'] }),
  },
  reservedAddrs: { create: () => ({ region: 'eu' }), update: () => ({ description: 'second' }) },
  shareLinks: { create: () => ({ url: SHARED.url, expires_in: 60 }) },
  applicationUsers: {},
  applicationSessions: {},
  eventDestinations: {
    create: () => ({ target: { webhook: { url: 'https://events.example.com/' } } }),
    update: () => ({ description: 'second' }),
    sendAgain: () => ({}),
    letGo: () => ({}),
  },
  messageRules: {
    create: () => ({ conditions: ['device_offline'], quiet_hours: '22:00-07:00 Europe/Berlin' }),
    update: () => ({ after_minutes: 10 }),
  },
  conditionHistory: { silence: () => ({ minutes: 60 }) },
  eventSubscriptions: {
    create: () => ({ sources: [{ type: '*' }] }),
    update: () => ({ description: 'second' }),
    addSource: () => ({ type: 'domain_created.v0' }),
    updateSource: () => ({}),
  },
  endpoints: {
    create: ({ n }) => ({ url: `https://c${n}.${BASE_DOMAIN}`, traffic_policy: DENY }),
    update: () => ({ description: 'second' }),
  },
  auditEvents: {},
  bulkActions: {
    create: ({ deviceId, n }) => ({ action: 'label', device_ids: [deviceId], labels: { floor: `${n}` } }),
    count: () => ({ action: 'restart', filter: { state: 'online' } }),
  },
  tunnels: {},
  history: {},
  tunnelSessions: {},
};

const DENY = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}';

/** The error codes for unknown ids that differ from the general one. */
const UNKNOWN_ID_CODES: Record<string, string> = {
  '/backends/http_response': 'ERR_NGROK_6514',
  '/backends/tunnel_group': 'ERR_NGROK_6514',
  '/edges/tls': 'ERR_NGROK_7000',
  '/endpoint_configurations': 'ERR_NGROK_1600',
  '/event_destinations': 'ERR_NGROK_5103',
  '/event_subscriptions': 'ERR_NGROK_5123',
  '/ip_policies': 'ERR_NGROK_1402',
  '/ip_policy_rules': 'ERR_NGROK_1404',
};

const ONLINE: Record<string, string> = {
  '/tunnels': TUNNEL.id,
  '/tunnel_sessions': SESSION.id,
};

const operations = allOperations();

let server: ManagementServer;
let shared: Omit<Fixtures, 'n'>;

beforeAll(async () => {
  server = await startManagementServer({
    settings: { failedAttempts: { free: 1000, windowMs: 1, delayMs: 0, maxDelayMs: 0 } },
    live: {
      sessions: () => [SESSION],
      tunnels: () => [TUNNEL],
      endpoints: () => [ENDPOINT, SHARED],
      command: isOnline,
    },
  });
  const ca = await issueCertificate({ subject: 'CN=ca', ca: true });
  const leaf = await issueCertificate({ subject: 'CN=leaf', names: ['leaf.example.com'] });
  shared = {
    backendId: (await server.call('POST', '/backends/http_response')).id,
    ipPolicyId: (await server.call('POST', '/ip_policies')).id,
    caId: (await server.call('POST', '/certificate_authorities', { ca_pem: ca.certificatePem })).id,
    caPem: ca.certificatePem,
    leafPem: leaf.certificatePem,
    leafKeyPem: leaf.privateKeyPem,
    vaultId: (await server.call('POST', '/vaults', { name: 'all' })).id,
    deviceId: await joinedDevice(),
  };
});
afterAll(() => server.close());
// There is one of each type.
afterEach(() =>
  server.store.database.write(() => {
    for (const { id } of server.store.ipRestrictions.page(null, 9)) server.store.ipRestrictions.delete(id);
  }),
);

function isOnline(id: string): boolean {
  return id === SESSION.id;
}

let bodies = 0;
function validBody(id: string): Record<string, unknown> | undefined {
  const [family = '', name = ''] = id.split('.');
  const families: Record<string, Record<string, Body>> = BODIES;
  bodies += 1;
  return families[family]?.[name]?.({ ...shared, n: bodies });
}

async function joinedDevice(): Promise<string> {
  const { secret } = await enrolmentKey(server);
  const joined = await server.call('POST', '/enrolments', { install_key: installKey(), secret });
  return String(joined.body.device_id);
}

/** The id of somebody who has signed in, or of their session. */
async function signedIn(collection: string): Promise<string> {
  await recordSignIns(server.store)(beginning({ subject: `jo${bodies}` }), 'cr_1').written;
  const { applicationUsers, applicationSessions } = server.store;
  return String((collection === '/app/users' ? applicationUsers : applicationSessions).page(null, 1)[0]?.id);
}

function collectionOf(path: string): string {
  return path.split('/{id}')[0] ?? '';
}

/** The event of a change of a policy. */
async function changedPolicy(): Promise<string> {
  const edge = await server.call('POST', '/edges/tls', {});
  await server.call('PUT', `/edges/tls/${edge.id}/traffic_policy`, { value: '{}' });
  return String(server.store.auditLog.latestPolicyChange(edge.id)?.id);
}

/** Something that was wrong, which only the gateway writes down. */
function recordedCondition(): Promise<string> {
  const { database, conditionHistory, ids, now } = server.store;
  return database.write(() => {
    const id = ids.next('cnd');
    conditionHistory.insert(
      conditionHistory.newRow({
        ...{ id, created_at: now(), condition: 'disk', subject: '', name: '', labels: {}, severity: 'critical' },
        ...{ message: 'full', remedy: 'free some space', began_at: now(), comes_and_goes: false, settled: false },
        ...{ told: [], withheld: [] },
      }),
    );
    return id;
  });
}

/** The id of an item that the operation applies to; a new one, unless it is online. */
async function itemFor({ id, operation: { method, path } }: (typeof operations)[number]): Promise<string> {
  const collection = collectionOf(path);
  if (collection === '/devices') return joinedDevice();
  if (collection === '/condition_history') return recordedCondition();
  if (collection.startsWith('/app/')) return signedIn(collection);
  if (id === 'auditEvents.undo') return changedPolicy();
  if (collection === '/audit_events') return String(server.store.auditLog.page(null, 1)[0]?.id);
  const create = operations.find(({ operation }) => operation.method === 'POST' && operation.path === collection);
  if (!create) return ONLINE[collection] ?? '';
  const item = await server.call('POST', collection, validBody(create.id));
  // A module can only be read after it has been set.
  const replace = id.replace(/\.get$/, '.replace');
  if (method === 'GET') {
    const module = validBody(replace);
    if (module) await server.call('PUT', path.replace('{id}', item.id), module);
  }
  return item.id;
}

describe.each(operations.map((row) => ({ ...row, title: `${row.operation.method} ${row.operation.path}` })))(
  '$title',
  (row) => {
    const { id, operation } = row;
    const { method, path, status, listKey } = operation;
    const takesBody = operation.body !== null;
    const withId = (item: string) => path.replace('{id}', item).replace('{type}', '*');
    const pathOfUnknown = withId('unknown');
    const refusal = async (body: unknown, headers?: Record<string, string>, query = '') => {
      const answer = await server.call(method, pathOfUnknown + query, body, headers);
      return [answer.status, answer.body.error_code];
    };

    it(`answers ${status} to a valid request`, async () => {
      const real = path.includes('{id}') ? withId(await itemFor(row)) : path;
      const answer = await server.call(method, real, validBody(id));
      expect([answer.status, answer.body.msg]).toEqual([status, undefined]);
      if (listKey)
        expect(answer.body).toEqual({
          [listKey]: expect.any(Array),
          uri: expect.any(String),
          // The audit log has what all tests have done.
          next_page_uri: listKey === 'audit_events' ? expect.toSatisfy(() => true) : null,
        });
    });

    it('answers 403 without an API key', async () => {
      expect(await refusal(validBody(id), { Authorization: '' })).toEqual([403, 'ERR_NGROK_200']);
    });

    it('answers 400 without an API version', async () => {
      expect(await refusal(validBody(id), { 'Service-Version': '' })).toEqual([400, 'ERR_NGROK_218']);
    });

    it('answers 400 to an unknown query parameter', async () => {
      expect(await refusal(validBody(id), {}, '?unknown=1')).toEqual([400, 'ERR_NGROK_231']);
    });

    if (path.includes('{id}'))
      it('answers 404 to an unknown id', async () => {
        const code = UNKNOWN_ID_CODES[collectionOf(path)] ?? 'ERR_NGROK_222';
        expect(await refusal(validBody(id))).toEqual([404, code]);
      });

    if (takesBody)
      it('answers 400 to a body that is not a JSON object', async () => {
        expect(await refusal('[]')).toEqual([400, 'ERR_NGROK_213']);
      });

    if (takesBody)
      it('answers 400 to an unknown member', async () => {
        expect(await refusal({ ...validBody(id), unknown: 1 })).toEqual([400, 'ERR_NGROK_214']);
      });
  },
);
