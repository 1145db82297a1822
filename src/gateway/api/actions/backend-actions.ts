import {
  type HttpResponseBackend,
  httpResponseBackends,
  type TunnelGroupBackend,
  tunnelGroupBackends,
} from '../../../management/resources/backend.ts';
import { tunnels } from '../../../management/resources/tunnel.ts';
import { type Labels, matchesSelector } from '../../endpoints/endpoint.ts';
import type { LiveTunnel, LiveView } from '../../endpoints/live-view.ts';
import type { HttpResponseBackendRow, TunnelGroupBackendRow } from '../../store/tls-edges.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../resource-router.ts';
import { storedActions } from './stored-actions.ts';

export function httpResponseBackendActions({ store, links }: ApiContext): Actions<typeof httpResponseBackends> {
  const { database, httpResponseBackends: rows } = store;
  const shown = (row: HttpResponseBackendRow): HttpResponseBackend => ({
    ...row,
    uri: links.of(httpResponseBackends, row.id),
  });
  return {
    // Can be deleted while an edge uses it: the edge keeps the dangling reference, as at ngrok.
    ...storedActions(database, { resource: httpResponseBackends, rows, shown }),
    create: ({ description = null, metadata = null, body = '', headers = null, status_code = 200 }) =>
      database.write(() => {
        const common = { id: store.ids.next('bkdhr'), created_at: store.now(), description, metadata };
        const row = { ...common, body, headers, status_code };
        rows.insert(row);
        return shown(row);
      }),
  };
}

export function tunnelGroupBackendActions({ store, live, links }: ApiContext): Actions<typeof tunnelGroupBackends> {
  const { database, tunnelGroupBackends: rows } = store;
  const shown = (row: TunnelGroupBackendRow): TunnelGroupBackend => ({
    ...row,
    uri: links.of(tunnelGroupBackends, row.id),
    tunnels: tunnelsWith(live, row.labels).map(({ id }) => links.ref(tunnels, id)),
  });
  return {
    ...storedActions(database, { resource: tunnelGroupBackends, rows, shown }),
    create: ({ description = null, metadata = null, labels = {} }) =>
      database.write(() => {
        const row = { id: store.ids.next('bkdtg'), created_at: store.now(), description, metadata, labels };
        rows.insert(row);
        return shown(row);
      }),
  };
}

function tunnelsWith(live: LiveView, selector: Labels): LiveTunnel[] {
  return live.tunnels().filter((tunnel) => matchesLabels(tunnel, selector));
}

export function matchesLabels({ labels }: LiveTunnel, selector: Labels): boolean {
  return labels !== null && matchesSelector(labels, selector);
}
