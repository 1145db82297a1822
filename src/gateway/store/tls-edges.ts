import type { httpResponseBackends, tunnelGroupBackends } from '../../management/resources/backend.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, type ColumnsOf, json, nullable, type RowOf, TouchedTable } from './sql/table.ts';

/** The stored modules of an edge, with the ids that they refer to. */
export interface EdgeModules {
  backend: { enabled: boolean; backend_id: string } | null;
  ip_restriction: { enabled: boolean; ip_policy_ids: string[] } | null;
  mutual_tls: { enabled: boolean; certificate_authority_ids: string[] } | null;
  tls_termination: { enabled: boolean; terminate_at: 'edge' | 'upstream'; min_version: string | null } | null;
  traffic_policy: { enabled: boolean; value: string } | null;
}

const edgeColumns = {
  ...annotatedColumns,
  hostports: nullable(json<string[]>()),
  backend: nullable(json<NonNullable<EdgeModules['backend']>>()),
  ip_restriction: nullable(json<NonNullable<EdgeModules['ip_restriction']>>()),
  mutual_tls: nullable(json<NonNullable<EdgeModules['mutual_tls']>>()),
  tls_termination: nullable(json<NonNullable<EdgeModules['tls_termination']>>()),
  traffic_policy: nullable(json<NonNullable<EdgeModules['traffic_policy']>>()),
};

export type TlsEdgeRow = RowOf<typeof edgeColumns>;

/** TLS edges. Their hostports and references are also stored in separate tables with constraints. */
export class TlsEdgesTable extends TouchedTable<typeof edgeColumns> {
  /** False without any edge. Checked with every bind, because most gateways have none. */
  #mayServe: boolean;

  constructor(database: Database) {
    super(database, 'tls_edges', edgeColumns);
    this.#mayServe = database.get('SELECT 1 FROM tls_edge_hostports LIMIT 1') !== null;
    database.onRowApplied((table) => {
      if (table === 'tls_edges') this.#mayServe = true;
    });
  }

  override insert(row: TlsEdgeRow): void {
    super.insert(row);
    this.#link(row);
  }

  override update(row: TlsEdgeRow): void {
    super.update(row);
    this.database.run('DELETE FROM tls_edge_hostports WHERE edge_id = ?', [row.id]);
    this.database.run('DELETE FROM tls_edge_references WHERE edge_id = ?', [row.id]);
    this.#link(row);
  }

  holderOf(hostport: string): string | null {
    if (!this.#mayServe) return null;
    const sql = 'SELECT edge_id FROM tls_edge_hostports WHERE hostport = ?';
    return this.database.get<{ edge_id: string }>(sql, [hostport])?.edge_id ?? null;
  }

  /** The distinct hosts that edges serve at or below a reserved domain, which may be a wildcard. */
  hostsUnder(domain: string): string[] {
    const base = reverseLabels(domain.replace(/^\*\./, ''));
    const rows = domain.startsWith('*.')
      ? this.#hosts('reversed_host > ? AND reversed_host < ?', [`${base}.`, `${base}/`]) // '/' follows '.' in ASCII
      : this.#hosts('reversed_host = ?', [base]);
    return rows.map((row) => reverseLabels(row.reversed_host));
  }

  #hosts(condition: string, parameters: string[]): { reversed_host: string }[] {
    const sql = `SELECT DISTINCT reversed_host FROM tls_edge_hostports WHERE ${condition}`;
    return this.database.all(sql, parameters);
  }

  #link(row: TlsEdgeRow): void {
    this.#mayServe = true;
    for (const hostport of row.hostports ?? []) {
      const host = hostport.slice(0, hostport.lastIndexOf(':'));
      const sql = 'INSERT INTO tls_edge_hostports (hostport, edge_id, reversed_host) VALUES (?, ?, ?)';
      this.database.run(sql, [hostport, row.id, reverseLabels(host)]);
    }
    for (const id of row.ip_restriction?.ip_policy_ids ?? []) {
      this.database.run('INSERT INTO tls_edge_references (edge_id, ip_policy_id) VALUES (?, ?)', [row.id, id]);
    }
    for (const id of row.mutual_tls?.certificate_authority_ids ?? []) {
      const sql = 'INSERT INTO tls_edge_references (edge_id, certificate_authority_id) VALUES (?, ?)';
      this.database.run(sql, [row.id, id]);
    }
  }
}

function reverseLabels(host: string): string {
  return host.split('.').reverse().join('.');
}

export type HttpResponseBackendRow = RowOf<ColumnsOf<typeof httpResponseBackends.row>>;
export type TunnelGroupBackendRow = RowOf<ColumnsOf<typeof tunnelGroupBackends.row>>;
