import type { PortRange } from '../../lib/network/port-range.ts';
import type { Database } from './sql/database.ts';
import {
  annotatedColumns,
  blob,
  type Column,
  flag,
  integer,
  json,
  nullable,
  type RowOf,
  Table,
  text,
} from './sql/table.ts';

/** `pending`: waits for an approval, without an authtoken. */
export type DeviceStatus = 'pending' | 'enrolled' | 'revoked';

/** A step in the life of a device. */
export interface DeviceEvent {
  /** RFC 3339, UTC. */
  at: string;
  what: 'requested' | 'enrolled' | 'joined again' | 'renewed' | 'approved' | 'renamed' | 'rotated' | 'revoked';
  /** The address it came from, or the id of the API key; `gateway` for a command on the gateway's machine. */
  by: string;
}

const deviceColumns = {
  ...annotatedColumns,
  name: text,
  old_name: nullable(text),
  site: text,
  owner_id: text,
  enrolment_key_id: nullable(text),
  install_hash: blob,
  credential_id: nullable(text),
  generation: integer,
  issued_generation: integer,
  status: text as Column<string> as Column<DeviceStatus>,
  tcp_ports: nullable(json<PortRange>()),
  own_names_only: flag,
  kept_rules: json<string[]>(),
  labels: json<Record<string, string>>(),
  /** As far as it is recorded; a gateway that was killed leaves it set. */
  online: flag,
  last_seen_at: nullable(text),
  last_ip: nullable(text),
  agent_version: nullable(text),
  history: json<DeviceEvent[]>(),
};

export type DeviceRow = RowOf<typeof deviceColumns>;

/** What the sessions of a device reveal. */
export type Sighting = Pick<DeviceRow, 'online' | 'last_seen_at' | 'last_ip' | 'agent_version'>;

/** Row of `facts` with the time until which devices were certainly online that are marked as such. */
const SEEN_UNTIL = 'devices_seen_until';

/** Devices that have joined with an enrolment key. */
export class Devices extends Table<typeof deviceColumns> {
  constructor(database: Database) {
    super(database, 'devices', deviceColumns);
  }

  byInstallation(hash: Buffer): DeviceRow | null {
    return this.where('install_hash = ?', [hash])[0] ?? null;
  }

  byCredential(credentialId: string): DeviceRow | null {
    return this.where('credential_id = ?', [credentialId])[0] ?? null;
  }

  /** Every device with this name, at any site. */
  named(name: string): DeviceRow[] {
    return this.where('name = ?', [name]);
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
    this.database.run('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)', [SEEN_UNTIL, now]);
  }

  /** Whether devices are marked as online: when the gateway starts, because it was killed. */
  areLeftOnline(): boolean {
    return this.where('online = 1 LIMIT 1', []).length > 0;
  }

  /** Marks all devices as offline since they were last seen. */
  endSightings(): void {
    const sql = 'SELECT value FROM facts WHERE name = ?';
    const until = this.database.get<{ value: string }>(sql, [SEEN_UNTIL])?.value ?? '';
    for (const row of this.where('online = 1', [])) {
      const { last_seen_at: seen } = row;
      this.update({ ...row, online: false, last_seen_at: (seen ?? '') > until ? seen : until || seen });
    }
  }
}

const keyColumns = {
  ...annotatedColumns,
  site: text,
  owner_id: text,
  secret_hash: blob,
  max_uses: nullable(integer),
  uses: integer,
  expires_at: nullable(text),
  revoked_at: nullable(text),
  needs_approval: flag,
  tcp_ports: nullable(json<PortRange>()),
  own_names_only: flag,
  labels: json<Record<string, string>>(),
};

export type EnrolmentKeyRow = RowOf<typeof keyColumns>;

/** Keys with which devices join a site; only the hashes of their secrets are stored. */
export class EnrolmentKeys extends Table<typeof keyColumns> {
  constructor(database: Database) {
    super(database, 'enrolment_keys', keyColumns);
  }

  /** The newest key of a site; null when it has none. */
  newestOf(site: string): EnrolmentKeyRow | null {
    return this.where('site = ? ORDER BY id DESC LIMIT 1', [site])[0] ?? null;
  }
}
