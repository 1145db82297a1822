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

const columns = {
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
  last_seen_at: nullable(text),
  last_ip: nullable(text),
  agent_version: nullable(text),
  history: json<DeviceEvent[]>(),
};

export type DeviceRow = RowOf<typeof columns>;

/** Devices that have joined with an enrolment key. */
export class Devices extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'devices', columns);
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
}
