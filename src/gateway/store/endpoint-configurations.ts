import type { Database } from './sql/database.ts';
import { annotatedColumns, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  ...annotatedColumns,
  type: text,
};

export type EndpointConfigurationRow = RowOf<typeof columns>;

/** Endpoint configurations, which reserved domains refer to. */
export const endpointConfigurations = (database: Database) => new Table(database, 'endpoint_configurations', columns);
