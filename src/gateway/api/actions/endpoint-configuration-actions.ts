import {
  type EndpointConfiguration,
  endpointConfigurations,
} from '../../../management/resources/endpoint-configuration.ts';
import type { EndpointConfigurationRow } from '../../store/endpoint-configurations.ts';
import type { ApiContext } from '../api-context.ts';
import { deleteUnlessUsed } from '../delete-unless-used.ts';
import type { Actions } from '../resource-router.ts';
import { storedActions } from './stored-actions.ts';

export function endpointConfigurationActions({ store, links }: ApiContext): Actions<typeof endpointConfigurations> {
  const { database, endpointConfigurations: rows } = store;
  const shown = (row: EndpointConfigurationRow): EndpointConfiguration => ({
    ...row,
    uri: links.of(endpointConfigurations, row.id),
  });
  return {
    ...storedActions(database, {
      resource: endpointConfigurations,
      rows,
      shown,
      remove: ({ id }) =>
        deleteUnlessUsed(() => rows.delete(id), 1619, 'A reserved domain still uses this endpoint configuration.'),
    }),
    create: ({ type, description = null, metadata = null }) =>
      database.write(() => {
        const row = { id: store.ids.next('ec'), created_at: store.now(), description, metadata, type };
        rows.insert(row);
        return shown(row);
      }),
  };
}
