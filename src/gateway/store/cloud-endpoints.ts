import { placeOf } from '../endpoints/endpoint-address.ts';
import type { EndpointAddress } from '../endpoints/online-endpoint.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, flag, integer, type RowOf, TouchedTable, text } from './sql/table.ts';

const columns = {
  ...annotatedColumns,
  updated_at: text,
  /** What it competes for, see {@link placeOf}. */
  place: text,
  proto: text,
  host: text,
  /** Only of internal and tcp ones: the others are at the ports that the gateway has now. */
  port: integer,
  internal: flag,
  pooling_enabled: flag,
  traffic_policy: text,
};

export type CloudEndpointRow = RowOf<typeof columns>;

/** Endpoints that no agent has bound: a traffic policy serves their clients. */
export class CloudEndpoints extends TouchedTable<typeof columns> {
  constructor(database: Database) {
    super(database, 'cloud_endpoints', columns);
  }

  /** Those at an address: several when they are pooled. */
  at(place: string): CloudEndpointRow[] {
    return this.where('place = ?', [place]);
  }

  /** The hosts of public ones at a name, or also below it when it is a wildcard; those can be wildcards too. */
  hostsUnder(domain: string): string[] {
    const end = domain.replace(/^\*/, '');
    const condition = domain.startsWith('*.') ? 'substr(host, -length(?)) = ?' : 'host = ? AND host = ?';
    return this.where(`internal = 0 AND ${condition}`, [end, end]).map(({ host }) => host);
  }
}

/** The columns of an address. */
export function addressColumns({ protocol, ...address }: EndpointAddress) {
  const columns = { proto: protocol, ...address };
  return { ...columns, place: placeOf(columns) };
}
