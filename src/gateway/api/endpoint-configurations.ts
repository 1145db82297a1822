import {
  type EndpointConfiguration,
  endpointConfigurations,
} from '../../management/resources/endpoint-configuration.ts';
import { changed } from '../store/changed.ts';
import type { EndpointConfigurationRow } from '../store/endpoint-configurations.ts';
import type { ApiContext } from './context.ts';
import { deleteUnlessUsed } from './delete-unless-used.ts';
import { type Actions, found } from './resource-router.ts';

export function endpointConfigurationActions({ store, links }: ApiContext): Actions<typeof endpointConfigurations> {
  const { database, endpointConfigurations: rows } = store;
  const shown = (row: EndpointConfigurationRow): EndpointConfiguration => ({
    ...row,
    uri: links.of(endpointConfigurations, row.id),
  });
  const stored = (id: string) => found(rows.get(id), endpointConfigurations);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map(shown),
    create: ({ type, description = null, metadata = null }) =>
      database.write(() => {
        const row = { id: store.ids.next('ec'), created_at: store.now(), description, metadata, type };
        rows.insert(row);
        return shown(row);
      }),
    update: (id, body) =>
      database.write(() => {
        const row = changed(stored(id), body);
        rows.update(row);
        return shown(row);
      }),
    remove: (id) =>
      database.write(() => {
        stored(id);
        deleteUnlessUsed(() => rows.delete(id), 1619, 'A reserved domain still uses this endpoint configuration.');
      }),
  };
}
