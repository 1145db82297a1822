import { existsSync } from 'node:fs';
import type { z } from 'zod';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import { createIdSource, type IdSource, ksuidOf } from '../../lib/ids.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import { RESOURCES, type Resources } from '../../management/operations.ts';
import type { ReadableResource } from '../../management/resources/resource.ts';
import type { PortMemory } from '../endpoints/tcp-port-allocator.ts';
import { apiKeysTable, BotUsers, Credentials } from './accounts.ts';
import { AgentUpdates } from './agent-updates.ts';
import { AuditLog } from './audit-log.ts';
import { BoundPolicies } from './bound-policies.ts';
import { BulkActions } from './bulk-actions.ts';
import { certificateAuthoritiesTable, TlsCertificates } from './certificates.ts';
import { CloudEndpoints } from './cloud-endpoints.ts';
import { ConditionHistory, SentMessages } from './condition-history.ts';
import { Devices, EnrolmentKeys, SiteNames } from './devices.ts';
import { OwnDomains, ReservedDomains } from './domains.ts';
import { ActivityEvents, EventDeliveries, EventDestinations, EventSubscriptions } from './events.ts';
import { IpRestrictions } from './ip-policies.ts';
import { NamePorts } from './name-ports.ts';
import { FamiliarNetworks, Passkeys, People, PersonLinks } from './people.ts';
import { RefusedEvents } from './refused-events.ts';
import { ShareLinksTable } from './share-links.ts';
import { ApplicationSessions, ApplicationUsers, EndedSignIns } from './sign-ins.ts';
import { Database } from './sql/database.ts';
import { DatabaseUnwritable, isFull } from './sql/database-problems.ts';
import type { OlderSchema } from './sql/migrations.ts';
import { type ColumnsOf, columnsOf, Table } from './sql/table.ts';
import { TlsEdgesTable } from './tls-edges.ts';
import { VaultSecrets } from './vaults.ts';

export interface Store extends ReturnType<typeof createTables> {
  auditLog: AuditLog;
  boundPolicies: BoundPolicies;
  eventDeliveries: EventDeliveries;
  familiarNetworks: FamiliarNetworks;
  database: Database;
  /** Encrypts the secrets in the database and in files beside it. */
  box: SecretsBox;
  ids: IdSource;
  /** The current time for stored times: RFC 3339, UTC, whole seconds. */
  now(): string;
  /** Random id of this gateway's account, created with the database. */
  account: string;
  siteNames: SiteNames;
  tcpPorts: UsedTcpPorts;
  namePorts: NamePorts;
}

/** A row of a table. */
export type Row<Name extends keyof ReturnType<typeof createTables> | 'auditLog'> = NonNullable<
  ReturnType<Store[Name]['get']>
>;

/**
 * Opens the gateway's store, and creates it if it is missing. Close it with `store.database.close()`. `box` encrypts private
 * keys.
 * @throws {OperatorError} when the file cannot be used
 */
export function openStore(
  file: string,
  box: SecretsBox,
  wallClock: () => number = Date.now,
  older: 'upgrade' | 'refuse' = 'upgrade',
): Store {
  return storeOn(openDatabase(file, older), box, wallClock);
}

/** The store of an open database. */
export function storeOn(database: Database, box: SecretsBox, wallClock: () => number = Date.now): Store {
  const now = () => timestamp(wallClock());
  const auditLog = new AuditLog(database, box, () => ids, now);
  const tables = { ...createTables(database, box, now), auditLog };
  const latest = Object.values(tables)
    .flatMap((table) => table.page(null, 1).map((row) => ksuidOf(row.id)))
    .reduce<string | null>((greatest, ksuid) => (greatest === null || ksuid > greatest ? ksuid : greatest), null);
  const ids = createIdSource(latest, wallClock);
  const siteNames = new SiteNames(database, now);
  // A wildcard is reserved for each site, below which any device may bind ever new names.
  const ownersOf = (names: readonly string[]) => {
    const reserved = names.flatMap((name): [string, string][] => {
      const domain = tables.reservedDomains.byName(name);
      return domain === null ? [] : [[name, domain.id]];
    });
    return new Map([...tables.devices.ofOwnNames(names), ...siteNames.devicesOf(names), ...reserved]);
  };
  return {
    database,
    box,
    ...tables,
    familiarNetworks: new FamiliarNetworks(database, box, now),
    eventDeliveries: new EventDeliveries(database, { ...tables, now, ids: () => ids }),
    boundPolicies: new BoundPolicies(database),
    siteNames,
    tcpPorts: new UsedTcpPorts(database, now),
    namePorts: new NamePorts(database, now, ownersOf),
    ids,
    now,
    account: database.fact('account') ?? '',
  };
}

function createTables(database: Database, box: SecretsBox, now: () => string) {
  const applicationUsers = new ApplicationUsers(database);
  return {
    ...rowTables(database),
    activityEvents: new ActivityEvents(database),
    agentUpdates: new AgentUpdates(database),
    apiKeys: apiKeysTable(database),
    applicationSessions: new ApplicationSessions(database, applicationUsers),
    applicationUsers,
    botUsers: new BotUsers(database),
    bulkActions: new BulkActions(database),
    certificateAuthorities: certificateAuthoritiesTable(database),
    cloudEndpoints: new CloudEndpoints(database),
    conditionHistory: new ConditionHistory(database),
    credentials: new Credentials(database),
    devices: new Devices(database, now),
    endedSignIns: new EndedSignIns(database),
    enrolmentKeys: new EnrolmentKeys(database),
    eventDestinations: new EventDestinations(database, box),
    eventSubscriptions: new EventSubscriptions(database),
    ipRestrictions: new IpRestrictions(database),
    ownDomains: new OwnDomains(database),
    passkeys: new Passkeys(database),
    people: new People(database),
    personLinks: new PersonLinks(database),
    refusedEvents: new RefusedEvents(database),
    reservedDomains: new ReservedDomains(database),
    sentMessages: new SentMessages(database),
    shareLinks: new ShareLinksTable(database),
    tlsCertificates: new TlsCertificates(database, box),
    tlsEdges: new TlsEdgesTable(database),
    vaultSecrets: new VaultSecrets(database, box),
  };
}

type TableOf<R> = R extends { row: infer Row extends z.ZodObject } ? Table<ColumnsOf<Row>> : never;

/** Tables of resources that say what their rows are, by the names of their families. */
export type RowTables = {
  [Name in keyof Resources as TableOf<Resources[Name]> extends never ? never : Name]: TableOf<Resources[Name]>;
};

function rowTables(database: Database): RowTables {
  const tables = Object.entries<ReadableResource>(RESOURCES).flatMap(([family, { table, row }]) =>
    row ? [[family, new Table(database, table, columnsOf(row))]] : [],
  );
  return Object.fromEntries(tables) as RowTables;
}

/** A device whose disk has become read-only, or full, must still come online, with the stored accounts. */
export function openDatabase(file: string, older: OlderSchema): Database {
  try {
    return Database.open(file, { older });
  } catch (error) {
    const cause = error instanceof OperatorError ? error.cause : null;
    if (!(hasErrno(cause, 'EROFS') || isFull(cause)) || !existsSync(file)) throw error;
    return Database.openCopy(file, older, DatabaseUnwritable.because(cause, file));
  }
}

/** RFC 3339 in UTC with whole seconds, as everywhere in the API. */
export function timestamp(milliseconds: number): string {
  return `${new Date(milliseconds).toISOString().slice(0, 19)}Z`;
}

/** The last use of each TCP endpoint's port, so that an offline device does not lose its port to another one. */
class UsedTcpPorts implements PortMemory {
  constructor(
    private readonly database: Database,
    private readonly now: () => string,
  ) {}

  used(): number[] {
    // One value: so many rows take four times as long.
    const sql = 'SELECT json_group_array(port) FROM (SELECT port FROM tcp_ports ORDER BY used_on, port)';
    return JSON.parse(String(this.database.values(sql, [])?.[0]));
  }

  isKnown(port: number): boolean {
    const known = `SELECT port FROM tcp_ports UNION ALL SELECT port FROM reserved_addrs
      UNION ALL SELECT port FROM cloud_endpoints WHERE proto = 'tcp' AND internal = 0`;
    return this.database.values(`SELECT 1 FROM (${known}) WHERE port = ? LIMIT 1`, [port]) !== null;
  }

  reserved(): number[] {
    const cloud = "SELECT port FROM cloud_endpoints WHERE proto = 'tcp' AND internal = 0";
    return this.database
      .all<{ port: number }>(`SELECT port FROM reserved_addrs UNION ${cloud}`)
      .map(({ port }) => port);
  }

  /** The bot user for whom a port is reserved; null: it is not, or for all. */
  ownerOf(port: number): string | null {
    const sql = 'SELECT owner_id FROM reserved_addrs WHERE port = ?';
    return this.database.get<{ owner_id: string | null }>(sql, [port])?.owner_id ?? null;
  }

  /** Writes once a day at most: agents reconnect often, and disks wear out. */
  async remember(port: number): Promise<void> {
    const today = this.now().slice(0, 'YYYY-MM-DD'.length);
    const known = this.database.get<{ used_on: string }>('SELECT used_on FROM tcp_ports WHERE port = ?', [port]);
    if (known?.used_on === today) return;
    await this.database.write(() => {
      this.database.run('INSERT OR REPLACE INTO tcp_ports (port, used_on) VALUES (?, ?)', [port, today]);
    });
  }
}
