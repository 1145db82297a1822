import { randomBytes } from 'node:crypto';
import type { Browser, BrowserContextOptions } from 'playwright-core';
import { addPerson } from '../../src/gateway/sign-in/manage-sign-ins.ts';
import { addressColumns } from '../../src/gateway/store/cloud-endpoints.ts';
import { issueDashboardCode } from '../../src/gateway/store/command-access.ts';
import type { DeviceRow } from '../../src/gateway/store/devices.ts';
import type { Store } from '../../src/gateway/store/store.ts';
import { issueApiKey, issueCredential } from '../../src/gateway/store/tokens.ts';
import { openPage, type WatchedPage } from './browser.ts';
import { issueCertificate } from './certificates.ts';
import { domainRow } from './domain-row.ts';
import type { TestGateway } from './gateway.ts';

const DAY_MS = 86_400_000;
/** A policy of a cloud endpoint. */
const CLOSED = '{"on_http_request":[{"actions":[{"type":"deny"}]}]}';

/** Opens a view of a gateway's dashboard, signed in. */
export async function openDashboard(
  browser: Browser,
  { apiUrl, store }: Pick<TestGateway, 'apiUrl' | 'store'>,
  view = '',
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const code = issueDashboardCode(store.box, Date.now());
  const opened = await openPage(browser, `${apiUrl}/#code=${code}`, options);
  await opened.page.getByText('Live', { exact: true }).waitFor();
  if (view !== '') await opened.page.goto(`${apiUrl}/#/${view}`);
  return opened;
}

/** The ids of what {@link fillStore} has written, by the view that shows it. */
export type Filled = Record<
  | 'devices'
  | 'bulk-actions'
  | 'invites'
  | 'domains'
  | 'certificates'
  | 'edges'
  | 'tunnel-groups'
  | 'responses'
  | 'ip-policies'
  | 'ip-restrictions'
  | 'tcp-addresses'
  | 'vaults'
  | 'endpoints'
  | 'audit-log'
  | 'authorities'
  | 'people'
  | 'sign-ins'
  | 'bot-users'
  | 'authtokens'
  | 'api-keys'
  | 'share-links'
  | 'event-destinations'
  | 'event-subscriptions'
  | 'message-rules'
  | 'condition-history',
  string
>;

/**
 * Writes one item of each resource, all with problems: an offline device, a failed certificate job, an expired certificate and
 * client CA, and an edge without tunnels.
 *
 * @param text stands wherever people, devices or others choose a text
 */
export async function fillStore(store: Store, text: string): Promise<Filled> {
  const past = { notBefore: new Date(Date.now() - 90 * DAY_MS), notAfter: new Date(Date.now() - 2 * DAY_MS) };
  const leaf = await issueCertificate({ subject: 'CN=shop.example.com', names: ['shop.example.com'], ...past });
  const ca = await issueCertificate({ subject: 'CN=Clients CA', ca: true, ...past });
  const facts = {
    subject_common_name: text,
    issuer_common_name: text,
    subject_alternative_names: { dns_names: [text, 'www.shop.example.com'], ips: [] },
    not_before: past.notBefore.toISOString(),
    not_after: past.notAfter.toISOString(),
    key_usages: ['digitalSignature'],
    extended_key_usages: ['serverAuth'],
    private_key_type: 'ecdsa',
    serial_number: '0a1b2c',
    subject_organization: text,
    subject_organizational_unit: text,
    subject_locality: text,
    subject_province: text,
    subject_country: text,
  };
  return store.database.write(() => {
    const now = store.now();
    const row = (prefix: string) => ({
      id: store.ids.next(prefix),
      created_at: now,
      description: text,
      metadata: text,
    });
    const bot = { id: store.ids.next('bot'), created_at: now, name: text, active: true };
    store.botUsers.insert(bot);
    const common = { description: text, metadata: text, owner_id: bot.id };
    const authtoken = issueCredential(store, { ...common, acl: ['bind:*.site.example.com'] }).row;
    const key = issueApiKey(store, common).row;
    const certificate = { ...row('cert'), certificate_pem: leaf.certificatePem, facts, issued_at: null };
    store.tlsCertificates.insertWithKey(certificate, leaf.privateKeyPem);
    const authority = { ...row('ca'), ca_pem: ca.certificatePem, facts };
    store.certificateAuthorities.insert(authority);
    const domain = { ...domainRow(store, 'shop.example.com', text), metadata: text };
    store.reservedDomains.insert({ ...domain, certificate_id: certificate.id });
    const retries_at = new Date(Date.now() + DAY_MS / 24).toISOString();
    const failing = {
      ...domain,
      id: store.ids.next('rd'),
      domain: '*.site.example.com',
      policy: { authority: 'letsencrypt', private_key_type: 'ecdsa' as const },
      job: { error_code: 'DNS_ERROR' as const, msg: text, started_at: now, retries_at, attempts: 3 },
      due_at: retries_at,
    };
    store.reservedDomains.insert(failing);
    const policy = row('ipp');
    store.ipPolicies.insert(policy);
    store.ipPolicyRules.insert({ ...row('ipr'), ip_policy_id: policy.id, cidr: '203.0.113.0/24', action: 'allow' });
    const restriction = { ...row('ipx'), type: 'endpoints', enforced: false, ip_policy_ids: [policy.id] };
    store.ipRestrictions.insert(restriction);
    const addr = { ...row('ra'), port: 20_001, owner_id: bot.id };
    store.reservedAddrs.insert(addr);
    const changes = { updated_at: now, created_by: null, last_updated_by: null };
    const vault = { ...row('vault'), ...changes, name: 'cameras', owner_id: bot.id };
    store.vaults.insert(vault);
    const secret = { ...row('secret'), ...changes, name: 'password', vault_id: vault.id };
    store.vaultSecrets.insert({ ...secret, value: store.vaultSecrets.seal('hidden', secret.id) });
    const address = addressColumns({ protocol: 'https', internal: true, host: 'closed.internal', port: 443 });
    const cloud = { ...row('ep'), ...address, updated_at: now, pooling_enabled: false, traffic_policy: CLOSED };
    store.cloudEndpoints.insert(cloud);
    const event = {
      type: 'ip_policy_updated.v0',
      object_id: policy.id,
      by: key.id,
      from_address: '203.0.113.7',
      part_of: null,
    };
    const [before, after] = [{ description: '' }, { description: text }];
    const change = { ...event, id: store.ids.next('evt'), created_at: now, before, after };
    store.auditLog.insert(change);
    const response = { ...row('bkdhr'), body: text, headers: { 'x-note': 'closed' }, status_code: 503 };
    store.httpResponseBackends.insert(response);
    const person = addPerson(store, { email: 'jo@example.com', name: text, groups: [text] });
    const group = { ...row('bkdtg'), labels: { app: 'camera', place: text } };
    store.tunnelGroupBackends.insert(group);
    const edge = {
      ...row('edgtls'),
      hostports: ['cam.site.example.com:443', 'door.site.example.com:443'],
      backend: { enabled: true, backend_id: group.id },
      ip_restriction: { enabled: true, ip_policy_ids: [policy.id] },
      mutual_tls: null,
      tls_termination: { enabled: true, terminate_at: 'edge' as const, min_version: '1.3' },
      traffic_policy: { enabled: false, value: text },
    };
    store.tlsEdges.insert(edge);
    const invite = {
      ...row('ek'),
      site: 'site.example.com',
      owner_id: bot.id,
      secret_hash: randomBytes(32),
      max_uses: 10,
      uses: 1,
      expires_at: null,
      revoked_at: null,
      needs_approval: true,
      tcp_ports: null,
      own_names_only: false,
      internal_names: false,
      labels: { place: text },
    };
    store.enrolmentKeys.insert(invite);
    const device = (name: string, seen: string | null, status: 'enrolled' | 'pending') =>
      store.devices.newRow({
        ...row('dev'),
        name,
        site: 'site.example.com',
        owner_id: bot.id,
        enrolment_key_id: invite.id,
        install_hash: randomBytes(32),
        credential_id: status === 'enrolled' ? authtoken.id : null,
        generation: 0,
        issued_generation: 0,
        status,
        own_names_only: false,
        internal_names: false,
        kept_rules: [],
        labels: { place: text },
        online: false,
        last_seen_at: seen,
        last_ip: '203.0.113.7',
        agent_version: text,
        history: [{ at: now, what: 'enrolled' as const, by: text }],
      });
    const offline = device('cabinet-7', new Date(Date.now() - 3 * DAY_MS).toISOString(), 'enrolled');
    store.devices.insert(offline);
    store.devices.insert(device('cabinet-8', null, 'pending'));
    const bulk = store.bulkActions.newRow({
      ...{ id: store.ids.next('blk'), created_at: now, action: 'label', state: 'finished', devices: 1, by: text },
      ...{ labels: { place: text }, remove_labels: [text], filter: { search: text }, finished_at: now },
    });
    store.bulkActions.begin(bulk, [{ device_id: offline.id, name: text }]);
    store.bulkActions.had(bulk.id, offline.id, text);
    const link = {
      ...row('sl'),
      ...{ host: 'cam.site.example.com', owner: bot.id, secret_hash: randomBytes(32), created_by: text },
      ...{ expires_at: retries_at, max_uses: 2, uses: 1, last_used_at: now },
    };
    store.shareLinks.insert(link);
    const user = {
      ...{ id: store.ids.next('au'), created_at: now, last_login: now },
      ...{ issuer: 'https://idp.example.com', subject: text, email: text, name: text },
    };
    store.applicationUsers.insert(user);
    const id = store.ids.next('ed');
    const destination = { ...row('ed'), id, ...store.eventDestinations.sealed({ kind: 'file', name: 'audit' }, id) };
    store.eventDestinations.insert(destination);
    store.eventDeliveries.begin(destination);
    const refused = {
      id: change.id,
      type: text,
      created_at: now,
      before: null,
      after: null,
      from_address: null,
      by: null,
    };
    store.eventDeliveries.refused(id, refused, text);
    store.eventDeliveries.failed(id, now, text);
    const rule = {
      ...row('mr'),
      ...{ conditions: ['backup'], sites: ['site.example.com'], labels: { floor: '2' }, subjects: [text] },
      ...{ after_minutes: 10, destination_ids: [id], quiet_hours: '22:00-07:00 Europe/Berlin', quiet_critical: false },
      remind_minutes: 60,
    };
    store.messageRules.insert(rule);
    const condition = store.conditionHistory.newRow({
      ...{ id: store.ids.next('cnd'), created_at: now, condition: 'backup', subject: text, name: text },
      ...{ site: 'site.example.com', labels: {}, severity: 'warning', message: text, remedy: text },
      ...{ began_at: now, ended_at: now, comes_and_goes: true, settled: true },
      told: [
        { destination_id: id, rule_id: rule.id, message_id: store.ids.next('evt'), kind: 'begun' as const, at: now },
      ],
      withheld: [{ destination_id: id, rule_id: rule.id, reason: 'silenced' as const, at: now }],
    });
    store.conditionHistory.insert(condition);
    const subscription = { ...row('esb'), sources: [text], destination_ids: [id] };
    store.eventSubscriptions.insert(subscription);
    return {
      devices: offline.id,
      'bulk-actions': bulk.id,
      invites: invite.id,
      domains: failing.id,
      certificates: certificate.id,
      edges: edge.id,
      'tunnel-groups': group.id,
      responses: response.id,
      'ip-policies': policy.id,
      'ip-restrictions': restriction.id,
      'tcp-addresses': addr.id,
      vaults: vault.id,
      endpoints: cloud.id,
      'audit-log': change.id,
      authorities: authority.id,
      people: person.id,
      'sign-ins': user.id,
      'bot-users': bot.id,
      authtokens: authtoken.id,
      'api-keys': key.id,
      'share-links': link.id,
      'event-destinations': id,
      'event-subscriptions': subscription.id,
      'message-rules': rule.id,
      'condition-history': condition.id,
    };
  });
}

/** Adds devices like one that {@link fillStore} has written, each with an authtoken of its own. */
export function addDevices(
  store: Store,
  like: string,
  count: number,
  changes: Partial<DeviceRow> = {},
): Promise<DeviceRow[]> {
  const sample = store.devices.get(like) as DeviceRow;
  const { owner_id } = sample;
  return store.database.write(() =>
    Array.from({ length: count }, () => {
      const { row } = issueCredential(store, { description: null, metadata: null, owner_id, acl: [] });
      const id = store.ids.next('dev');
      const own = { id, name: id.toLowerCase(), install_hash: randomBytes(32), credential_id: row.id };
      const device = { ...sample, ...own, ...changes };
      store.devices.insert(device);
      return device;
    }),
  );
}
