import type { ConditionId } from '../../../management/condition-kinds.ts';
import type { CertificateAuthority, TlsCertificate } from '../../../management/resources/certificate.ts';
import type { Device } from '../../../management/resources/device.ts';
import type { ReservedDomain } from '../../../management/resources/reserved-domain.ts';
import type { TlsEdge } from '../../../management/resources/tls-edge.ts';
import { type CaChange, caChange } from '../../certificates/local-ca/ca-rotation.ts';
import { type Condition, shownCondition } from '../../conditions/conditions.ts';
import {
  type CountedElsewhere,
  type LiveGateway,
  NOBODY_ELSE,
  type ReportedCondition,
} from '../../endpoints/live-view.ts';
import { IS_AWAY } from '../../store/devices.ts';
import { lastBackup } from '../../store/last-backup.ts';
import type { SqlValue } from '../../store/sql/sql-engine.ts';
import { timestamp } from '../../store/store.ts';
import type { TlsEdgeRow } from '../../store/tls-edges.ts';
import { showDevice } from '../actions/device-actions.ts';
import { showDomain } from '../actions/reserved-domain-actions.ts';
import type { ApiContext } from '../api-context.ts';

export interface Attention<Item> {
  readonly total: number;
  /** The newest. */
  readonly first: readonly Item[];
}

type Certificate = Pick<
  TlsCertificate,
  'id' | 'subject_common_name' | 'subject_alternative_names' | 'not_after' | 'issued_at'
>;
type SeenDevice = Pick<Device, 'id' | 'name' | 'last_seen_at' | 'created_at'>;

/** What an operator should do something about, by kind; as the management API shows it, in part. */
export interface NeedsAttention {
  readonly expired: Attention<Certificate>;
  readonly expiredAuthorities: Attention<
    Pick<CertificateAuthority, 'id' | 'subject_common_name' | 'description' | 'not_after'>
  >;
  readonly failedDomains: Attention<ReservedDomain>;
  readonly idleEdges: Attention<Pick<TlsEdge, 'id' | 'hostports' | 'description'> & { readonly hasGroup: boolean }>;
  readonly offline: Attention<SeenDevice>;
  readonly expiring: Attention<Certificate>;
  readonly neverOnline: Attention<SeenDevice>;
  readonly pending: Attention<SeenDevice>;
}

export interface OverviewCondition extends ReportedCondition {
  /** Addresses of the gateways that it is of; empty when there is one gateway. */
  readonly gateways: readonly string[];
}

export interface DashboardOverview {
  readonly devices: number;
  readonly domains: number;
  /** When the last backup was made; null: there is none. */
  readonly lastBackupAt: string | null;
  /** Whether somebody may be told when something goes wrong. */
  readonly hasMessageRules: boolean;
  /** Empty when there is one. */
  readonly gateways: readonly LiveGateway[];
  /** What is wrong, the worst first, without what is in `attention` and `gateways`. */
  readonly conditions: readonly OverviewCondition[];
  readonly attention: NeedsAttention;
  /** How far a change of the gateway's own CA is, with the first devices that have not followed; null: there is no change. */
  readonly caChange: (Omit<CaChange, 'missing'> & { readonly missing: Attention<string> }) | null;
}

const UNKNOWN: ReportedCondition = {
  id: 'gateway_unknown',
  severity: 'warning',
  message: 'not known whether anything is wrong: the gateway does not say',
  remedy: 'upgrade it if it is older than this one; otherwise run device-agent gateway doctor on its machine',
};
const UNANSWERED: ReportedCondition = {
  id: 'gateway_unanswered',
  severity: 'warning',
  message: 'not known whether anything is wrong: the gateway does not answer this one',
  remedy: 'run device-agent gateway doctor on the machine of this gateway, which says why',
};

/** So many of each kind; the lists have all. */
const FIRST = 10;
/** A certificate that nobody renews needs attention so many milliseconds before its end. */
const SOON_MS = 14 * 24 * 60 * 60 * 1000;

/** Those that the overview shows one by one, with links. */
const SHOWN_APART: readonly string[] = [
  'domain_certificate',
  'gateway_silent',
  'device_offline',
] satisfies ConditionId[];

/** What the first view of the dashboard shows, counted in the database: its size does not grow with the gateway's. */
export async function dashboardOverview(
  context: ApiContext,
  conditions: () => Promise<readonly Condition[]>,
): Promise<DashboardOverview> {
  const { devices, reservedDomains } = context.store;
  const [here, elsewhere] = await Promise.all([conditions(), context.live.askElsewhere?.()]);
  const gateways = context.live.gateways?.() ?? [];
  return {
    devices: devices.count('TRUE', []),
    domains: reservedDomains.count('TRUE', []),
    lastBackupAt: lastBackup(context.store.database),
    hasMessageRules: context.store.messageRules.page(null, 1).length > 0,
    gateways,
    conditions: conditionsOfAll(gateways, here, elsewhere),
    attention: { ...certificates(context), ...domains(context), idleEdges: idleEdges(context), ...fleet(context) },
    caChange: changeOfCa(context),
  };
}

/** Each once, with the gateways that it is of. */
function conditionsOfAll(
  gateways: readonly LiveGateway[],
  here: readonly Condition[],
  { counted, missing }: CountedElsewhere = NOBODY_ELSE,
): OverviewCondition[] {
  const own = gateways.find(({ isThis }) => isThis)?.address;
  const isSilent = (address: string) => gateways.some((each) => each.address === address && each.state === 'silent');
  const all = new Map<string, OverviewCondition>();
  const add = (conditions: readonly ReportedCondition[], address: string | undefined) => {
    for (const condition of conditions.filter(({ id }) => !SHOWN_APART.includes(id)).map(shownCondition)) {
      const key = JSON.stringify(condition);
      const before = all.get(key)?.gateways ?? [];
      all.set(key, { ...condition, gateways: address === undefined ? before : [...before, address] });
    }
  };
  add(here, own);
  for (const { address, conditions } of counted) if (!missing.includes(address)) add(conditions ?? [UNKNOWN], address);
  for (const address of missing) if (!isSilent(address)) add([UNANSWERED], address);
  const isCritical = ({ severity }: OverviewCondition) => severity === 'critical';
  return [...all.values()].sort((a, b) => Number(isCritical(b)) - Number(isCritical(a)));
}

function certificates({ store }: ApiContext): Pick<NeedsAttention, 'expired' | 'expiring' | 'expiredAuthorities'> {
  const now = store.now();
  const soon = timestamp(Date.parse(now) + SOON_MS);
  const first = (condition: string, parameters: readonly SqlValue[]): Attention<Certificate> =>
    attention(store.tlsCertificates, condition, parameters, ({ id, facts, issued_at }) => {
      const { subject_common_name, subject_alternative_names, not_after } = facts;
      return { id, subject_common_name, subject_alternative_names, not_after, issued_at };
    });
  const isUsed = 'id IN (SELECT certificate_id FROM reserved_domains)';
  return {
    // Automatic ones are renewed before. An uploaded one that has expired matters where a domain still uses it.
    expired: first(`facts ->> 'not_after' <= ? AND (issued_at IS NOT NULL OR ${isUsed})`, [now]),
    expiring: first("facts ->> 'not_after' > ? AND facts ->> 'not_after' < ? AND issued_at IS NULL", [now, soon]),
    expiredAuthorities: attention(
      store.certificateAuthorities,
      "facts ->> 'not_after' <= ?",
      [now],
      ({ id, description, facts: { subject_common_name, not_after } }) => ({
        id,
        description,
        subject_common_name,
        not_after,
      }),
    ),
  };
}

function domains(context: ApiContext): Pick<NeedsAttention, 'failedDomains'> {
  const failed = "policy IS NOT NULL AND job ->> 'error_code' IS NOT NULL";
  return { failedDomains: attention(context.store.reservedDomains, failed, [], (row) => showDomain(context, row)) };
}

/** Edges whose tunnel group was deleted or has no tunnel. */
function idleEdges({ store, live }: ApiContext): NeedsAttention['idleEdges'] {
  const groupOf = ({ backend }: TlsEdgeRow) => store.tunnelGroupBackends.get(backend?.backend_id ?? '');
  const idle = store.tlsEdges
    .where("backend ->> 'enabled' AND backend ->> 'backend_id' LIKE 'bkdtg\\_%' ESCAPE '\\' ORDER BY id DESC", [])
    .filter((edge) => {
      if (!edge.hostports?.length) return false;
      const labels = groupOf(edge)?.labels;
      return !labels || live.find.tunnelsWith(labels).length === 0;
    });
  const first = idle.slice(0, FIRST).map((edge) => {
    const { id, hostports, description } = edge;
    return { id, hostports, description, hasGroup: groupOf(edge) !== null };
  });
  return { total: idle.length, first };
}

function fleet(context: ApiContext): Pick<NeedsAttention, 'offline' | 'neverOnline' | 'pending'> {
  const online = JSON.stringify(context.live.sessions().flatMap(({ credentialId }) => credentialId ?? []));
  const first = (condition: string, parameters: readonly SqlValue[]): Attention<SeenDevice> =>
    attention(context.store.devices, condition, parameters, (row) => {
      const { id, name, last_seen_at, created_at } = showDevice(context, row);
      return { id, name, last_seen_at, created_at };
    });
  const isOffline = `status = 'enrolled' AND COALESCE(credential_id, '') NOT IN (SELECT value FROM json_each(?))`;
  return {
    offline: first(`${isOffline} AND last_seen_at IS NOT NULL AND NOT ${IS_AWAY}`, [
      online,
      context.store.devices.late,
    ]),
    neverOnline: first(`${isOffline} AND last_seen_at IS NULL`, [online]),
    pending: first("status = 'pending'", []),
  };
}

function changeOfCa({ store }: ApiContext): DashboardOverview['caChange'] {
  const change = caChange(store, FIRST);
  if (change === null) return null;
  const total = store.devices.count("status = 'enrolled'", []) - change.followed;
  return { ...change, missing: { total, first: change.missing } };
}

interface Countable<Row> {
  count(condition: string, parameters: readonly SqlValue[]): number;
  where(condition: string, parameters: readonly SqlValue[]): Row[];
}

function attention<Row, Item>(
  rows: Countable<Row>,
  condition: string,
  parameters: readonly SqlValue[],
  shown: (row: Row) => Item,
): Attention<Item> {
  const total = rows.count(condition, parameters);
  const first = total === 0 ? [] : rows.where(`${condition} ORDER BY id DESC LIMIT ${FIRST}`, parameters);
  return { total, first: first.map(shown) };
}
