import type { PortRange } from '../../lib/network/port-range.ts';
import { OVERDUE_MS } from '../../management/device-presence.ts';
import { Device, type DeviceFilters, type ReportedBudget } from '../../management/resources/device.ts';
import { EnrolmentKey, type EnrolmentKeyFilters } from '../../management/resources/enrolment.ts';
import type { Database } from './sql/database.ts';
import {
  chosenRows,
  conditionsOf,
  joined,
  type ListedBy,
  type ListPart,
  labelCondition,
  searchCondition,
} from './sql/list-choice.ts';
import {
  blob,
  columnsOf,
  END,
  flag,
  integer,
  json,
  nullable,
  type RowOf,
  type SqlPart,
  tableOf,
  text,
} from './sql/table.ts';

export interface DeviceEvent {
  /** RFC 3339, UTC. */
  at: string;
  what:
    | 'requested'
    | 'enrolled'
    | 'joined again'
    | 'renewed'
    | 'approved'
    | 'renamed'
    | 'moved'
    | 'rotated'
    | 'revoked';
  /** The address it came from, or the id of the API key; `gateway` for a command on the gateway's machine. */
  by: string;
}

/** What devices show that is no column: it is computed. */
const COMPUTED = {
  domain: true,
  plain_names: true,
  enrolment_key: true,
  credential: true,
  rotation_pending: true,
  online_since: true,
  link_setting: true,
  ip: true,
  tunnels: true,
} as const;

/** CAs of the gateway that a device has said it trusts, of which one is looked for. */
const TRUSTED = "SELECT 1 FROM json_each(coalesce(trusted_cas, '[]')) WHERE value = ?";

const deviceColumns = {
  ...columnsOf(Device.omit(COMPUTED)),
  old_name: nullable(text),
  /** Whether its link is, as an operator says; null: the device does. */
  metered: nullable(flag),
  enrolment_key_id: nullable(text),
  install_hash: blob,
  credential_id: nullable(text),
  /** Of the authtoken that it had before it was revoked or rotated. */
  former_credential_id: nullable(text),
  generation: integer,
  issued_generation: integer,
  tcp_ports: nullable(json<PortRange>()),
  kept_rules: json<string[]>(),
  /** As far as it is recorded; a gateway that was killed leaves it set. */
  online: flag,
  last_ip: nullable(text),
  history: json<DeviceEvent[]>(),
};

export type DeviceRow = RowOf<typeof deviceColumns>;

/** A device that is not online, and what it was online from last. */
export interface OfflineDevice extends Pick<DeviceRow, 'id' | 'name' | 'site' | 'labels'> {
  /** When it was last online. */
  since: string;
  ip: string | null;
}

type OfflineValues = [
  ...[id: string, name: string, site: string, labels: string],
  ...[since: string, ip: string | null, credentialId: string | null],
];

/** The device that has an authtoken; its labels are JSON. */
export type CredentialDevice = Pick<DeviceRow, 'id' | 'name' | 'site'> & { labels: string };

/** What the sessions of a device reveal. */
export type Sighting = Partial<DeviceRow>;

const LISTED_BY = {
  searched: ['id', 'name', 'site', 'labels', 'description', 'agent_version', 'last_ip'],
  sorted: { name: 'name', site: 'site' },
};

/** Row of `facts` with the time until which devices were certainly online that are marked as such. */
const SEEN_UNTIL = 'devices_seen_until';

/** Whether its authtoken is among those of a JSON array. */
const IS_ONLINE = "coalesce(credential_id, '') IN (SELECT value FROM json_each(?))";
/** Whether it is offline by plan; the parameter is {@link Devices.late}. */
export const IS_AWAY = "coalesce(data_budget ->> 'back_at', '') > ?";
const STATE = `CASE WHEN ${IS_ONLINE} THEN 1 WHEN last_seen_at IS NOT NULL THEN 2 ELSE 3 END`;

/** Of a version, which agents may make as long as they like; the place of a page has it. */
const ORDERED_CHARACTERS = 100;

/** Possible ends of a device's own name, each its name and site: `a-b-c.site` has `b-c.site` and `c.site`. */
function ownEnds(hostname: string): string[] {
  const label = hostname.slice(0, hostname.indexOf('.'));
  return [...label.matchAll(/-/g)].map(({ index }) => hostname.slice(index + 1));
}

/** A text that sorts as the numbers in a version do: 1.10 after 1.9. */
export function versionOrder(version: string): string {
  return version
    .slice(0, ORDERED_CHARACTERS)
    .toLowerCase()
    .replace(/\d+/g, (digits) => digits.padStart(8, '0'));
}

export class Devices extends tableOf('devices', deviceColumns) {
  /** {@link byCredential} as of the last commit: several parts ask for the device of each session. Not inside a write. */
  readonly ofAuthtoken: (credentialId: string) => DeviceRow | null;

  constructor(
    database: Database,
    private readonly now: () => string,
  ) {
    super(database);
    this.ofAuthtoken = database.untilCommit((credentialId) => this.byCredential(credentialId));
  }

  /** Devices that have said that they come back by then are late. */
  get late(): string {
    return new Date(Date.parse(this.now()) - OVERDUE_MS).toISOString();
  }

  byInstallation(hash: Buffer): DeviceRow | null {
    return this.where('install_hash = ?', [hash])[0] ?? null;
  }

  byCredential(credentialId: string): DeviceRow | null {
    return this.where('credential_id = ?', [credentialId])[0] ?? null;
  }

  /** The device that had an authtoken until it was revoked or rotated. */
  byFormerCredential(credentialId: string): DeviceRow | null {
    return this.where('former_credential_id = ?', [credentialId])[0] ?? null;
  }

  /** Those that have joined, but have not said that they trust a CA of the gateway, by its id. @param most -1: all */
  notTrusting(ca: string, most = -1): Pick<DeviceRow, 'name' | 'site'>[] {
    return this.database.all(
      `SELECT name, site FROM devices WHERE status = 'enrolled' AND NOT EXISTS (${TRUSTED}) ORDER BY site, name LIMIT ?`,
      [ca, most],
    );
  }

  /** How many have said so. */
  trusting(ca: string): number {
    return this.count(`status = 'enrolled' AND EXISTS (${TRUSTED})`, [ca]);
  }

  /** The ids of the devices whose own names some hostnames are, as they end in the device's name. */
  ofOwnNames(hostnames: readonly string[]): ReadonlyMap<string, string> {
    const ends = JSON.stringify([...new Set(hostnames.flatMap(ownEnds))]);
    const sql = `SELECT id, own FROM (
        SELECT id, old_name || '.' || site AS own FROM devices WHERE status = 'enrolled'
        UNION ALL SELECT id, name || '.' || site FROM devices WHERE status = 'enrolled'
      ) WHERE own IN (SELECT value FROM json_each(?))`;
    const ids = new Map(this.database.all<{ id: string; own: string }>(sql, [ends]).map(({ id, own }) => [own, id]));
    return new Map(
      hostnames.flatMap((hostname) =>
        ownEnds(hostname).flatMap((end): [string, string][] => {
          const id = ids.get(end);
          return id === undefined ? [] : [[hostname, id]];
        }),
      ),
    );
  }

  /** Every device with this name, at any site. */
  named(name: string): DeviceRow[] {
    return this.where('name = ?', [name]);
  }

  /**
   * A page of those for which all filters hold.
   * @param online the authtokens that have a session, at any gateway; asked only where this decides
   */
  chosen(
    before: string | null,
    limit: number,
    filters: DeviceFilters,
    online: () => readonly string[],
  ): ListPart<DeviceRow> {
    const { sort } = filters;
    const isByState = filters.state !== undefined || sort?.by === 'state' || sort?.by === 'last_seen_at';
    const ids = isByState ? JSON.stringify(online()) : '[]';
    const sorted: ListedBy['sorted'] = {
      ...LISTED_BY.sorted,
      state: [`CASE status WHEN 'pending' THEN 4 WHEN 'revoked' THEN 5 ELSE ${STATE} END`, ids],
      last_seen_at: [`CASE WHEN ${IS_ONLINE} THEN '${END}' ELSE last_seen_at END`, ids],
      agent_version: this.#versionOrder(filters),
    };
    return chosenRows(this, { ...LISTED_BY, sorted }, filters, this.#conditions(filters, ids), { before, limit });
  }

  /** All those for which all filters hold, oldest first. */
  all(filters: DeviceFilters, online: Iterable<string>, limit: number): DeviceRow[] {
    const further = this.#conditions(filters, JSON.stringify([...online]));
    const search = filters.search ? [searchCondition(LISTED_BY.searched, filters.search)] : [];
    const [sql, ...values] = joined([['TRUE'], ...further, ...search]);
    return this.where(`${sql} ORDER BY id LIMIT ?`, [...values, limit]);
  }

  #conditions(filters: DeviceFilters, online: string): SqlPart[] {
    return conditionsOf(filters, {
      site: (site) => ['site = ?', site],
      version: (version) => ['substr(agent_version, 1, ?) = ?', version.length, version],
      label: labelCondition,
      state: (state) => {
        if (state === 'pending' || state === 'revoked') return ['status = ?', state];
        const wanted: Record<typeof state, SqlPart> = {
          online: [IS_ONLINE, online],
          offline: [`NOT ${IS_ONLINE} AND last_seen_at IS NOT NULL AND NOT ${IS_AWAY}`, online, this.late],
          away: [`NOT ${IS_ONLINE} AND ${IS_AWAY}`, online, this.late],
          never: [`NOT ${IS_ONLINE} AND last_seen_at IS NULL`, online],
        };
        const [sql, ...values] = wanted[state];
        return [`status = 'enrolled' AND ${sql}`, ...values];
      },
    });
  }

  /** The few versions that devices have, in the order of their numbers. */
  #versionOrder({ sort }: DeviceFilters): SqlPart {
    if (sort?.by !== 'agent_version') return ['agent_version'];
    const versions = this.database.allValues('SELECT DISTINCT agent_version FROM devices', []).flat();
    const keys = versions.map((version) => [version, versionOrder(String(version ?? ''))]);
    return [
      "(SELECT value FROM json_each(?) WHERE key = coalesce(agent_version, ''))",
      JSON.stringify(Object.fromEntries(keys)),
    ];
  }

  /** What lists of what is online find devices by, by their authtokens: one query for thousands. */
  ofCredentials(): ReadonlyMap<string, CredentialDevice> {
    const sql = 'SELECT credential_id, id, name, site, labels FROM devices WHERE credential_id IS NOT NULL';
    const rows = this.database.allValues(sql, []) as [string, string, string, string, string][];
    return new Map(rows.map(([credential, id, name, site, labels]) => [credential, { id, name, site, labels }]));
  }

  /** The names in use at a site, with those that devices keep after a rename. */
  namesAt(site: string): string[] {
    const rows = this.database.allValues('SELECT name, old_name FROM devices WHERE site = ?', [site]);
    return rows.flat().filter((name): name is string => typeof name === 'string');
  }

  /** Records a sighting, unless the device was deleted. */
  saw(id: string, sighting: Sighting): void {
    const row = this.get(id);
    if (row) this.update({ ...row, ...sighting });
  }

  /** Records that all devices that are marked as online are so now: one row for any number of devices. */
  sawAll(now: string): void {
    this.database.setFact(SEEN_UNTIL, now);
  }

  /** All devices that are marked as online, with their authtokens; null: it was revoked or rotated. */
  markedOnline(): Pick<DeviceRow, 'id' | 'credential_id'>[] {
    return this.database.all('SELECT id, credential_id FROM devices WHERE online = 1', []);
  }

  /**
   * Devices that have joined and were online, without those that are online now or away by plan; the longest ago first. One that
   * goes offline is among them as soon as that is recorded: a few seconds later.
   * @param isOnline by the authtoken
   */
  offline(isOnline: (credentialId: string) => boolean): OfflineDevice[] {
    // Looks at no others: an index has these.
    const sql = `SELECT id, name, site, labels, last_seen_at, last_ip, credential_id FROM devices
      WHERE status = 'enrolled' AND online = 0 AND last_seen_at IS NOT NULL AND NOT ${IS_AWAY}
      ORDER BY last_seen_at, id`;
    const rows = this.database.allValues(sql, [this.late]) as OfflineValues[];
    return rows.flatMap(([id, name, site, labels, since, ip, credentialId]) =>
      credentialId !== null && isOnline(credentialId)
        ? []
        : { id, name, site, labels: labels === '{}' ? {} : JSON.parse(labels), since, ip },
    );
  }

  /** Those that are offline by plan, without those that are back earlier. @param isOnline as for {@link offline} */
  away(isOnline: (credentialId: string) => boolean): DeviceRow[] {
    const sql = `status = 'enrolled' AND data_budget IS NOT NULL AND ${IS_AWAY} ORDER BY id`;
    return this.where(sql, [this.late]).filter(
      ({ credential_id }) => credential_id === null || !isOnline(credential_id),
    );
  }

  /** How many have a data budget, by what they have used of it. */
  budgetStates(): { state: ReportedBudget['state']; devices: number }[] {
    const sql = `SELECT data_budget ->> 'state' AS state, COUNT(*) AS devices FROM devices
      WHERE status = 'enrolled' AND data_budget IS NOT NULL GROUP BY 1`;
    return this.database.all(sql, []);
  }

  /** How many devices have joined and were online, by site and by the address that they came from last. */
  seenBySiteAndAddress(): { site: string; ip: string | null; devices: number }[] {
    const sql = `SELECT site, last_ip AS ip, COUNT(*) AS devices FROM devices
      WHERE status = 'enrolled' AND last_seen_at IS NOT NULL GROUP BY site, last_ip`;
    return this.database.all(sql, []);
  }

  /** Whether devices are marked as online: when the gateway starts, because it was killed. */
  areLeftOnline(): boolean {
    return this.where('online = 1 LIMIT 1', []).length > 0;
  }

  /** Marks all devices as offline since they were last seen. */
  endSightings(): void {
    const until = this.database.fact(SEEN_UNTIL) ?? '';
    for (const row of this.where('online = 1', [])) {
      const { last_seen_at: seen } = row;
      this.update({ ...row, online: false, last_seen_at: (seen ?? '') > until ? seen : until || seen });
    }
  }
}

const keyColumns = {
  ...columnsOf(EnrolmentKey.omit({ code: true, tcp_ports: true })),
  secret_hash: blob,
  tcp_ports: nullable(json<PortRange>()),
};

export type EnrolmentKeyRow = RowOf<typeof keyColumns>;

/** Keys with which devices join a site; only the hashes of their secrets are stored. */
export class EnrolmentKeys extends tableOf('enrolment_keys', keyColumns) {
  /** A page of those for which all filters hold. @param now RFC 3339 */
  chosen(before: string | null, limit: number, filters: EnrolmentKeyFilters, now: string): ListPart<EnrolmentKeyRow> {
    const state = `CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= ? THEN 'expired'
      WHEN uses >= max_uses THEN 'used_up' ELSE 'valid' END`;
    const further = conditionsOf(filters, {
      site: (site) => ['site = ?', site],
      label: labelCondition,
      state: (wanted) => [`${state} = ?`, now, wanted],
    });
    const by: ListedBy = {
      searched: ['id', 'site', 'labels', 'description', 'metadata', 'owner_id'],
      sorted: {
        site: 'site',
        state: [state, now],
        // Those that never expire come last.
        expires_at: `coalesce(expires_at, '${END}')`,
        uses: "printf('%012d', uses)",
      },
    };
    return chosenRows(this, by, filters, further, { before, limit });
  }

  newestOf(site: string): EnrolmentKeyRow | null {
    return this.where('site = ? ORDER BY id DESC LIMIT 1', [site])[0] ?? null;
  }
}

/** Who may use a name directly below a site. */
interface SiteName {
  hostname: string;
  /** The device that holds it; null: it belongs to authtokens whose rules allow it, or it was released. */
  device_id: string | null;
  /** The device from which it was released; any other one can get it. */
  released_from: string | null;
}

/** Whether a name belongs to authtokens whose rules allow it. */
export function isOfRules({ device_id, released_from }: SiteName): boolean {
  return device_id === null && released_from === null;
}

/** The names directly below sites of devices that somebody has or had. Change them only inside `Database.write`. */
export class SiteNames {
  constructor(
    private readonly database: Database,
    private readonly now: () => string,
  ) {}

  get(hostname: string): SiteName | null {
    return this.among([hostname])[0] ?? null;
  }

  among(hostnames: readonly string[]): SiteName[] {
    return this.database.all<SiteName>(
      'SELECT hostname, device_id, released_from FROM site_names WHERE hostname IN (SELECT value FROM json_each(?))',
      [JSON.stringify(hostnames)],
    );
  }

  /** Whether the device with this authtoken holds a name. */
  isHeldBy(hostname: string, credentialId: string): boolean {
    const sql = `SELECT 1 FROM site_names JOIN devices ON devices.id = site_names.device_id
      WHERE hostname = ? AND credential_id = ?`;
    return this.database.values(sql, [hostname, credentialId]) !== null;
  }

  /** The ids of the devices that hold some of these names. */
  devicesOf(hostnames: readonly string[]): ReadonlyMap<string, string> {
    return new Map(
      this.among(hostnames).flatMap(({ hostname, device_id }) => (device_id === null ? [] : [[hostname, device_id]])),
    );
  }

  /** The labels of the names that a device holds. */
  labelsOf(deviceId: string): string[] {
    const sql = 'SELECT hostname FROM site_names WHERE device_id = ? ORDER BY hostname';
    return this.database
      .all<Pick<SiteName, 'hostname'>>(sql, [deviceId])
      .map(({ hostname }) => hostname.slice(0, hostname.indexOf('.')));
  }

  /** How many names of a site belong to devices, or to rules of authtokens. */
  countAt(site: string, owners: 'devices' | 'rules'): number {
    // Indices answer this: a site may have 50,000 names.
    const sql = `SELECT
      (SELECT COUNT(*) FROM site_names WHERE device_id > '' AND +site = ?)
      + (SELECT COUNT(*) FROM site_names WHERE released_from > '' AND +site = ?)`;
    const [devices = 0] = this.database.values(sql, [site, site]) ?? [];
    if (owners === 'devices') return Number(devices);
    const [all = 0] = this.database.values('SELECT COUNT(*) FROM site_names WHERE site = ?', [site]) ?? [];
    return Number(all) - Number(devices);
  }

  /** Whether a name at a site that is not free ends in `-<name>`; those of the device `except` do not count. */
  hasEnding(site: string, name: string, except: string | null): boolean {
    const end = `-${name}.${site}`;
    const sql = `SELECT 1 FROM site_names WHERE site = ? AND substr(hostname, -length(?)) = ?
      AND released_from IS NULL AND device_id IS NOT ? LIMIT 1`;
    return this.database.values(sql, [site, end, end, except ?? '']) !== null;
  }

  /** Whether devices have joined a site or can join it. */
  isSite(site: string): boolean {
    const sql = `SELECT 1 WHERE EXISTS (SELECT 1 FROM devices WHERE site = ?)
      OR EXISTS (SELECT 1 FROM enrolment_keys WHERE site = ?)`;
    return this.database.values(sql, [site, site]) !== null;
  }

  /** Whether a domain or one below it is a site. */
  hasSiteAtOrBelow(domain: string): boolean {
    const end = `.${domain}`;
    const isBelow = 'site = ? OR substr(site, -length(?)) = ?';
    const sql = `SELECT 1 WHERE EXISTS (SELECT 1 FROM devices WHERE ${isBelow})
      OR EXISTS (SELECT 1 FROM enrolment_keys WHERE ${isBelow})`;
    return this.database.values(sql, [domain, end, end, domain, end, end]) !== null;
  }

  put({ hostname, device_id, released_from }: SiteName): void {
    const site = hostname.slice(hostname.indexOf('.') + 1);
    // Devices are shown with their names.
    for (const id of [device_id, released_from]) if (id !== null) this.database.changes.add('devices', id);
    this.database.run(
      'INSERT OR REPLACE INTO site_names (hostname, site, device_id, released_from, created_at) VALUES (?, ?, ?, ?, ?)',
      [hostname, site, device_id, released_from, this.now()],
    );
  }

  /** The names that belong to authtokens whose rules allow them, in order. */
  kept(): { hostname: string; created_at: string }[] {
    return this.database.all(
      'SELECT hostname, created_at FROM site_names WHERE device_id IS NULL AND released_from IS NULL ORDER BY hostname',
    );
  }

  /** Forgets a name that belongs to such authtokens; returns whether there was one. */
  freeKept(hostname: string): boolean {
    const sql = 'DELETE FROM site_names WHERE hostname = ? AND device_id IS NULL AND released_from IS NULL';
    if (this.database.run(sql, [hostname]) === 0) return false;
    this.database.noteChange({ table: 'site_names', before: { id: hostname }, after: null });
    return true;
  }

  freeAllOf(deviceId: string): void {
    this.database.changes.add('devices', deviceId);
    this.database.run('DELETE FROM site_names WHERE device_id = ? OR released_from = ?', [deviceId, deviceId]);
  }
}
