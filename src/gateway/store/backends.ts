import type { Database } from './sql/database.ts';
import { annotatedColumns, integer, json, nullable, type RowOf, Table, text } from './sql/table.ts';

const httpResponseColumns = {
  ...annotatedColumns,
  body: text,
  headers: nullable(json<Record<string, string>>()),
  status_code: integer,
};
const tunnelGroupColumns = { ...annotatedColumns, labels: json<Record<string, string>>() };

export type HttpResponseBackendRow = RowOf<typeof httpResponseColumns>;
export type TunnelGroupBackendRow = RowOf<typeof tunnelGroupColumns>;

/** Backends that answer every request with one fixed response. */
export const httpResponseBackends = (database: Database) =>
  new Table(database, 'http_response_backends', httpResponseColumns);

/** Backends that balance connections over the online tunnels with specific labels. */
export const tunnelGroupBackends = (database: Database) =>
  new Table(database, 'tunnel_group_backends', tunnelGroupColumns);
