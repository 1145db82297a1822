import { beforeEach, describe, expect, it } from 'vitest';
import type { LiveEndpoint } from '../../src/gateway/endpoints/live-view.ts';
import { recordSignIns } from '../../src/gateway/sign-in/recorded-sign-ins.ts';
import { ManagementClient } from '../../src/management/client.ts';
import { allOperations } from '../../src/management/operations.ts';
import { beginning } from '../support/begun-sign-in.ts';
import { issueCertificate } from '../support/certificates.ts';
import { enrolmentKey, installKey } from '../support/enrolment.ts';
import { type ManagementServer, startManagementServer } from '../support/management-server.ts';
import { ENDPOINT, SESSION, SHARED, TUNNEL } from '../support/online-agent.ts';
import { until } from '../support/until.ts';

let server: ManagementServer;
let client: ManagementClient;
let succeeded: Set<string>;
/** Those that have changed nothing in the audit log. */
let unrecorded: Set<string>;
let commands: string[];
let online: LiveEndpoint[];

beforeEach(async () => {
  succeeded = new Set();
  unrecorded = new Set();
  commands = [];
  online = [ENDPOINT];
  server = await startManagementServer({
    // Nobody listens there: the check answers, but no test asks the real DNS.
    dnsServers: ['127.0.0.1:9'],
    live: {
      sessions: () => [SESSION],
      endpoints: () => online,
      tunnels: () => [TUNNEL],
      command: (id, command) => id === SESSION.id && commands.push(command) > 0,
    },
  });
  client = new ManagementClient({ baseUrl: server.url, apiKey: server.apiKey, fetch: recordSuccess });
  return () => server.close();
});

/** Records successful operations in `succeeded` and `unrecorded`, as `METHOD /path/{id}`. */
const recordSuccess: typeof fetch = async (input, init) => {
  const before = latestChange();
  const answer = await fetch(input, init);
  const path = new URL(String(input)).pathname
    .replace(/\/[a-z]+_[0-9A-Za-z]{27}/, '/{id}')
    .replace(/[a-z_]+\.v0$/, '{type}');
  if (!answer.ok) return answer;
  succeeded.add(`${init?.method} ${path}`);
  if (init?.method !== 'GET' && latestChange() === before) unrecorded.add(`${init?.method} ${path}`);
  return answer;
};

const latestChange = () => server.store.auditLog.page(null, 1)[0]?.id;

interface Resources<C, U> {
  create(body: C): Promise<{ id: string }>;
  get(id: string): Promise<{ id: string }>;
  list(): Promise<{ items: { id: string }[] }>;
  update(id: string, body: U): Promise<object>;
  delete(id: string): Promise<void>;
}

/** Creates, lists, updates, gets and deletes one resource. */
async function crud<C, U extends object>(resources: Resources<C, U>, create: C, update: U): Promise<void> {
  const { id } = await resources.create(create);
  expect((await resources.list()).items[0]?.id).toBe(id);
  expect(await resources.update(id, update)).toMatchObject(update);
  expect(await resources.get(id)).toMatchObject({ id, ...update });
  await resources.delete(id);
  await expect(resources.get(id)).rejects.toMatchObject({ isNotFound: true });
}

const workflows = {
  async 'creates, reads, updates and deletes every kind of resource'() {
    const description = { description: 'second' };
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: 'CN=a', names: ['a.example.com'] });
    const authority = await issueCertificate({ subject: 'CN=authority', ca: true });
    await crud(client.reservedDomains, { domain: '*.a.example.com' }, description);
    await crud(client.tlsEdges, { hostports: ['b.example.com:443'] }, description);
    await crud(client.botUsers, {}, { name: 'second', active: false });
    await crud(client.serviceUsers, { name: 'first' }, { name: 'second' });
    await crud(client.httpResponseBackends, { headers: { A: 'b' } }, { body: 'short and stout', status_code: 418 });
    await crud(client.tunnelGroupBackends, { labels: { app: 'web' } }, { labels: { app: 'db' } });
    await crud(client.ipPolicies, {}, description);
    await crud(client.certificateAuthorities, { ca_pem: authority.certificatePem }, description);
    await crud(
      client.tlsCertificates,
      { certificate_pem: certificatePem, private_key_pem: privateKeyPem },
      description,
    );
    await crud(client.credentials, { acl: ['bind:*.example.com'] }, { acl: ['bind:a.example.com'] });
    await crud(client.apiKeys, {}, description);
    await crud(client.endpointConfigurations, { type: 'http' }, description);
    const policy = await client.ipPolicies.create({});
    const rule = { cidr: '203.0.113.0/24', action: 'allow' as const, ip_policy_id: policy.id };
    await crud(client.ipPolicyRules, rule, { cidr: '198.51.100.0/24' });
    const restriction = { type: 'endpoints' as const, ip_policy_ids: [policy.id] };
    await crud(client.ipRestrictions, restriction, { enforced: true });
    await crud(client.reservedAddrs, {}, description);
    const answers = '{"on_http_request": [{"actions": [{"type": "deny"}]}]}';
    const cloud = { type: 'cloud' as const, url: 'https://cloud.gateway.test', traffic_policy: answers };
    await crud(client.endpoints, cloud, description);
  },

  async 'keeps secrets in vaults'() {
    await crud(client.vaults, { name: 'empty' }, { description: 'second' });
    const vault = await client.vaults.create({ name: 'cameras' });
    await crud(client.secrets, { vault_id: vault.id, name: 'password', value: 'first' }, { description: 'second' });
    const { id } = await client.secrets.create({ vault_id: vault.id, name: 'token', value: 'secret' });
    expect((await client.vaults.listSecrets(vault.id)).items).toMatchObject([{ id, name: 'token' }]);
    await client.secrets.delete(id);
    await client.vaults.delete(vault.id);
  },

  async 'makes, lists and revokes share links'() {
    online = [SHARED];
    const { id, link } = await client.shareLinks.create({ url: SHARED.url, expires_in: 60 });
    expect(link).toContain(`${SHARED.url}/ngrok/share/`);
    const listed = { ...(await client.shareLinks.get(id)), link: null };
    expect((await client.shareLinks.list()).items).toEqual([listed]);
    await client.shareLinks.delete(id);
    await expect(client.shareLinks.get(id)).rejects.toMatchObject({ isNotFound: true });
    online = [ENDPOINT];
  },

  async 'lists who has signed in, and ends their sessions'() {
    const record = recordSignIns(server.store);
    await record(beginning(), 'cr_1').written;
    const { id, written } = record(beginning(), 'cr_1');
    await written;
    const session = await client.applicationSessions.get(id);
    await client.applicationSessions.delete(id);
    expect((await client.applicationSessions.list()).items).toHaveLength(1);
    const user = await client.applicationUsers.get(session.application_user.id);
    expect((await client.applicationUsers.list()).items).toEqual([user]);
    await client.applicationUsers.delete(user.id);
    expect((await client.applicationSessions.list()).items).toEqual([]);
  },

  async 'lists who has changed what'() {
    const bot = await client.botUsers.create({});
    await client.botUsers.update(bot.id, { active: false });
    const { items } = await client.auditEvents.list({ filters: { object_id: bot.id, type: 'bot_user_updated.v0' } });
    expect(items).toMatchObject([{ before: { active: true }, after: { active: false } }]);
    expect(await client.auditEvents.get(items[0]?.id ?? '')).toEqual(items[0]);
    const all: string[] = [];
    for await (const { type } of client.auditEvents.all({ limit: 1, filters: { object_id: bot.id } })) all.push(type);
    expect(all).toEqual(['bot_user_updated.v0', 'bot_user_created.v0']);
    const edge = await client.tlsEdges.create({});
    await client.tlsEdges.trafficPolicy.replace(edge.id, { value: '{"on_tcp_connect": []}' });
    const changed = (await client.auditEvents.list({ filters: { object_id: edge.id } })).items[0]?.id ?? '';
    expect((await client.auditEvents.get(changed)).policy_difference).toContain('+on_tcp_connect: []');
    const undone = await client.auditEvents.undo(changed);
    expect(undone).toMatchObject({
      type: 'tls_edge_updated.v0',
      policy_difference: expect.stringContaining('-on_tcp'),
    });
  },

  async 'subscribes destinations to events'() {
    const target = { webhook: { url: 'https://events.example.com/hook' } };
    await crud(client.eventDestinations, { target }, { description: 'second' });
    const destination = await client.eventDestinations.create({ target });
    const { database, eventDeliveries, refusedEvents } = server.store;
    const event = {
      id: 'evt_1',
      created_at: '',
      type: 'a.v0',
      before: null,
      after: null,
      from_address: null,
      by: null,
    };
    await database.write(() => eventDeliveries.refused(destination.id, event, 'status 400'));
    const [refused] = (await client.eventDestinations.listRefusedEvents(destination.id)).items;
    expect(refused).toMatchObject({ event_id: 'evt_1', reason: 'status 400', sending: false });
    await client.eventDestinations.sendAgain(destination.id, { refused_event_ids: [refused?.id ?? ''] });
    for await (const each of client.eventDestinations.allRefusedEvents(destination.id)) expect(each.sending).toBe(true);
    const { delivery } = await client.eventDestinations.letGo(destination.id);
    expect([delivery?.refused, refusedEvents.countOf(destination.id)]).toEqual([0, 0]);
    const sources = [{ type: 'domain_created.v0' }];
    await crud(client.eventSubscriptions, { sources, destination_ids: [destination.id] }, { description: 'second' });
    const { id } = await client.eventSubscriptions.create({ sources });
    await client.eventSubscriptions.addSource(id, 'domain_deleted.v0');
    await client.eventSubscriptions.updateSource(id, 'domain_deleted.v0');
    await client.eventSubscriptions.removeSource(id, 'domain_created.v0');
    expect(await client.eventSubscriptions.getSources(id)).toMatchObject([{ type: 'domain_deleted.v0' }]);
    expect(await client.eventSubscriptions.getSource(id, 'domain_deleted.v0')).toMatchObject({
      uri: expect.stringContaining(`/event_subscriptions/${id}/sources/domain_deleted.v0`),
    });
  },

  async 'tells people what is wrong'() {
    const target = { ntfy: { url: 'https://ntfy.example.com/alarms', token: 'tk_x' } };
    const destination = await client.eventDestinations.create({ target });
    expect(destination.target.ntfy).toEqual({ url: target.ntfy.url, address: target.ntfy.url });
    expect(await client.eventDestinations.test(destination.id)).toEqual({ accepted: false, answer: 'nobody answers' });
    await crud(client.messageRules, { destination_ids: [destination.id] }, { quiet_hours: '22:00-07:00' });
    const { database, conditionHistory, ids, now } = server.store;
    const id = await database.write(() => {
      const row = conditionHistory.newRow({
        ...{ id: ids.next('cnd'), created_at: now(), condition: 'disk', subject: '', name: '', labels: {} },
        ...{
          severity: 'critical',
          message: 'full',
          remedy: 'free some space',
          began_at: now(),
          told: [],
          withheld: [],
        },
        ...{ comes_and_goes: false, settled: false },
      });
      conditionHistory.insert(row);
      return row.id;
    }, null);
    expect((await client.conditionHistory.list({ filters: { open: 'true' } })).items).toMatchObject([{ id }]);
    expect(await client.conditionHistory.get(id)).toMatchObject({ message: 'full', acknowledged_by: null });
    expect(await client.conditionHistory.acknowledge(id)).toMatchObject({
      acknowledged_by: expect.stringMatching(/^ak_/),
    });
    expect((await client.conditionHistory.silence(id, { minutes: 5 })).silenced_until).not.toBeNull();
  },

  async 'manages the people of the gateway'() {
    await crud(client.people, { email: 'Jo@Example.com', name: 'Jo' }, { groups: ['family'] });
    const { id } = await client.people.create({ email: 'ann@example.com' });
    const { url } = await client.people.createLink(id);
    expect(new URL(url).host).toBe('sign-in.gateway.test');
    await client.people.signOut(id);
    expect(await client.people.get(id)).toMatchObject({
      email: 'ann@example.com',
      password_set_at: null,
      passkeys: [],
    });
    const policy = (config: object) =>
      JSON.stringify({ on_http_request: [{ actions: [{ type: 'gateway-sign-in', config }] }] });
    const open = async (name: string, config: object) => {
      const url = `https://${name}.gateway.test`;
      return (await client.endpoints.create({ url, traffic_policy: policy(config) })).id;
    };
    const all = await open('all', {});
    const named = await open('named', { people: ['ANN@example.com'], groups: ['admins'] });
    const others = await open('others', { groups: ['family'] });
    const listed = async () => {
      const ids: string[] = [];
      for await (const endpoint of client.people.allEndpoints(id, { limit: 1 })) ids.push(endpoint.id);
      return ids;
    };
    expect(await listed()).toEqual([named, all]);
    expect(await client.endpoints.get(named)).toMatchObject({
      people: { everyone: false, emails: ['ann@example.com'], groups: ['admins'] },
    });
    await client.endpoints.update(all, { traffic_policy: policy({ groups: ['admins'] }) });
    expect(await listed()).toEqual([named]);
    for (const endpoint of [all, named, others]) await client.endpoints.delete(endpoint);
  },

  async 'detaches policy, certificate and configurations of a domain'() {
    const { id } = await client.reservedDomains.create({ domain: 'c.example.com', certificate_management_policy: {} });
    const http = await client.endpointConfigurations.create({ type: 'http' });
    const https = await client.endpointConfigurations.create({ type: 'https' });
    await client.reservedDomains.update(id, {
      http_endpoint_configuration_id: http.id,
      https_endpoint_configuration_id: https.id,
    });
    expect((await client.reservedDomains.checkDns(id)).records).toMatchObject([{ name: 'c.example.com' }]);
    await client.reservedDomains.detachHttpEndpointConfiguration(id);
    await client.reservedDomains.detachHttpsEndpointConfiguration(id);
    await client.reservedDomains.detachCertificateManagementPolicy(id);
    await client.reservedDomains.detachCertificate(id);
    expect(await client.reservedDomains.get(id)).toMatchObject({
      certificate_management_policy: null,
      certificate: null,
      http_endpoint_configuration: null,
      https_endpoint_configuration: null,
    });
  },

  async 'replaces, reads and deletes every module of a TLS edge'() {
    const backend = await client.httpResponseBackends.create({});
    const policy = await client.ipPolicies.create({});
    const { certificatePem } = await issueCertificate({ subject: 'CN=authority', ca: true });
    const authority = await client.certificateAuthorities.create({ ca_pem: certificatePem });
    const { id } = await client.tlsEdges.create({});
    const { tlsEdges } = client;
    const set = {
      backend: await tlsEdges.backend.replace(id, { backend_id: backend.id }),
      ip_restriction: await tlsEdges.ipRestriction.replace(id, { ip_policy_ids: [policy.id], enabled: false }),
      mutual_tls: await tlsEdges.mutualTls.replace(id, { certificate_authority_ids: [authority.id] }),
      tls_termination: await tlsEdges.tlsTermination.replace(id, { terminate_at: 'edge', min_version: '1.3' }),
      traffic_policy: await tlsEdges.trafficPolicy.replace(id, { value: '{}' }),
    };
    expect(await tlsEdges.get(id)).toMatchObject(set);
    const modules = [
      tlsEdges.backend,
      tlsEdges.ipRestriction,
      tlsEdges.mutualTls,
      tlsEdges.tlsTermination,
      tlsEdges.trafficPolicy,
    ];
    const read = await Promise.all(modules.map((module) => module.get(id)));
    expect(read).toEqual(Object.values(set));
    for (const module of modules) {
      await module.delete(id);
      await expect(module.get(id)).rejects.toMatchObject({ isNotFound: true });
    }
  },

  async 'invites a device, and approves, renames, rotates, revokes and deletes it'() {
    await crud(client.enrolmentKeys, { site: '*.example.com' }, { max_uses: 3 });
    const { id, secret } = await enrolmentKey(server, { needs_approval: true });
    const join = { install_key: installKey(), secret, name: 'Cabinet 7' };
    expect((await server.call('POST', '/enrolments', join)).body).toMatchObject({ status: 'pending', authtoken: null });
    const [pending] = (await client.devices.list()).items;
    expect(pending).toMatchObject({ name: 'cabinet-7', status: 'pending', enrolment_key: { id } });
    const device = String(pending?.id);
    expect(await client.devices.approve(device)).toMatchObject({ status: 'enrolled' });
    await server.call('POST', '/enrolments', join);
    expect(await client.devices.update(device, { name: 'cabinet-8' })).toMatchObject({
      domain: 'agent-cabinet-8.site.example.com',
    });
    expect(await client.devices.getHistory(device, { step: 'day' })).toMatchObject({ step: 'day', points: [] });
    expect(await client.devices.rotate(device)).toMatchObject({ rotation_pending: true });
    expect(await client.devices.revoke(device)).toMatchObject({ status: 'revoked', credential: null });
    expect((await client.devices.get(device)).history.map(({ what }) => what)).toEqual([
      'requested',
      'approved',
      'enrolled',
      'renamed',
      'rotated',
      'revoked',
    ]);
    expect(await client.bulkActions.count({ action: 'restart', filter: {} })).toEqual({
      ...{ devices: 1, online: 0, unfit: 1, names: ['cabinet-8'] },
    });
    const begun = await client.bulkActions.create({ action: 'restart', device_ids: [device] });
    expect(begun).toMatchObject({ state: 'running', devices: 1, filter: null });
    await until(async () => (await client.bulkActions.get(begun.id)).state === 'finished', 'the bulk action ends');
    expect((await client.bulkActions.get(begun.id)).failures).toMatchObject([{ name: 'cabinet-8', reason: 'offline' }]);
    expect((await client.bulkActions.list({ filters: { state: 'finished' } })).items).toMatchObject([{ failed: 1 }]);
    const { bulkActions, database, ids, now } = server.store;
    const waiting = ids.next('blk');
    await database.write(() => {
      const row = {
        id: waiting,
        created_at: now(),
        action: 'restart',
        state: 'running',
        devices: 1,
        by: 'gateway',
      } as const;
      bulkActions.begin(bulkActions.newRow(row), [{ device_id: device, name: 'cabinet-8' }]);
    });
    expect(await client.bulkActions.cancel(waiting)).toMatchObject({ state: 'cancelled', left: 1 });
    await client.devices.delete(device);
    await expect(client.devices.get(device)).rejects.toMatchObject({ isNotFound: true });
  },

  async 'lists online objects and sends commands to sessions'() {
    expect(await client.tunnelSessions.get(SESSION.id)).toMatchObject({
      ip: SESSION.ip,
      agent_version: SESSION.agentVersion,
    });
    expect((await client.tunnelSessions.list()).items).toHaveLength(1);
    expect(await client.tunnels.get(TUNNEL.id)).toMatchObject({ public_url: TUNNEL.publicUrl });
    expect((await client.tunnels.list()).items).toHaveLength(1);
    expect(await client.endpoints.get(ENDPOINT.id)).toMatchObject({ url: ENDPOINT.url, tunnel: { id: TUNNEL.id } });
    expect((await client.endpoints.list()).items).toHaveLength(1);
    expect(await client.endpoints.getHistory(ENDPOINT.id)).toMatchObject({ step: 'hour', points: [] });
    expect(await client.endpoints.getTopRequests(ENDPOINT.id)).toMatchObject({ requests: 0, paths: [] });
    expect(await client.history.get({ url: ENDPOINT.url, step: 'minute' })).toMatchObject({ step: 'minute' });
    await client.tunnelSessions.restart(SESSION.id);
    await client.tunnelSessions.stop(SESSION.id);
    await client.tunnelSessions.update(SESSION.id);
    await client.tunnelSessions.disconnect(SESSION.id);
    expect(commands).toEqual(['restart', 'stop', 'update', 'disconnect']);
  },
};

describe('the client against the gateway', () => {
  it.each(Object.entries(workflows))('%s', (_title, run) => run());

  it('reads all pages of a list in order, although next_page_uri has another base URL', async () => {
    const ids: string[] = [];
    for (let n = 0; n < 7; n += 1) ids.unshift((await client.ipPolicies.create({})).id);
    const seen: string[] = [];
    for await (const policy of client.ipPolicies.all({ limit: 2 })) seen.push(policy.id);
    expect(seen.slice(0, 7)).toEqual(ids);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('rejects with the code and operation id of an error', async () => {
    await client.reservedDomains.create({ domain: 'twice.example.com' });
    await expect(client.reservedDomains.create({ domain: 'twice.example.com' })).rejects.toMatchObject({
      status: 400,
      code: 'ERR_NGROK_413',
      operationId: expect.stringMatching(/^op_/),
    });
    const unauthorized = new ManagementClient({ baseUrl: server.url, apiKey: 'not_mine' });
    await expect(unauthorized.botUsers.list()).rejects.toMatchObject({ status: 403, isUnauthorized: true });
  });

  it('supports every operation', async () => {
    for (const run of Object.values(workflows)) await run();
    const missing = allOperations().filter(({ operation: { method, path } }) => !succeeded.has(`${method} ${path}`));
    expect(missing.map(({ id }) => id)).toEqual([]);
    const changesNothing = /\/tunnel_sessions\/|\/check_dns$|\/test$|\/count$/;
    expect([...unrecorded].filter((operation) => !changesNothing.test(operation))).toEqual([]);
  });
});
