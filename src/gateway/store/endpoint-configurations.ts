import type { Database } from './database.ts';
import { nullable, type RowOf, Table, text } from './table.ts';

const columns = {
  id: text,
  created_at: text,
  description: nullable(text),
  metadata: nullable(text),
  type: text,
};

export type EndpointConfigurationRow = RowOf<typeof columns>;

/** Endpoint configurations, which reserved domains refer to. */
export const endpointConfigurations = (database: Database) => new Table(database, 'endpoint_configurations', columns);
