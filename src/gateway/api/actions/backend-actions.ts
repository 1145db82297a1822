import { httpResponseBackends, tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { tunnels } from '../../../management/resources/tunnel.ts';
import { type Labels, matchesSelector } from '../../endpoints/endpoint.ts';
import type { LiveTunnel, LiveView } from '../../endpoints/live-view.ts';
import type { HttpResponseBackendRow, TunnelGroupBackendRow } from '../../store/tls-edges.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { createRow, type Stored, storedActions } from './stored-actions.ts';

export function httpResponseBackendActions({ store, links }: ApiContext): Actions<typeof httpResponseBackends> {
  const stored: Stored<typeof httpResponseBackends, HttpResponseBackendRow> = {
    resource: httpResponseBackends,
    rows: store.httpResponseBackends,
    shown: (row) => ({ ...row, uri: links.of(httpResponseBackends, row.id) }),
  };
  return {
    // Can be deleted while an edge uses it: the edge keeps the dangling reference, as at ngrok.
    ...storedActions(store.database, stored),
    create: ({ body = '', headers = null, status_code = 200, ...sent }, caller) =>
      createRow(store, stored, sent, caller, (common) => ({ ...common, body, headers, status_code })),
  };
}

export function tunnelGroupBackendActions({ store, live, links }: ApiContext): Actions<typeof tunnelGroupBackends> {
  const stored: Stored<typeof tunnelGroupBackends, TunnelGroupBackendRow> = {
    resource: tunnelGroupBackends,
    rows: store.tunnelGroupBackends,
    shown: (row) => ({
      ...row,
      uri: links.of(tunnelGroupBackends, row.id),
      tunnels: tunnelsWith(live, row.labels).map(({ id }) => links.ref(tunnels, id)),
    }),
  };
  return {
    ...storedActions(store.database, stored),
    create: ({ labels = {}, ...sent }, caller) =>
      createRow(store, stored, sent, caller, (common) => ({ ...common, labels })),
  };
}

function tunnelsWith(live: LiveView, selector: Labels): LiveTunnel[] {
  return live.tunnels().filter((tunnel) => matchesLabels(tunnel, selector));
}

export function matchesLabels({ labels }: LiveTunnel, selector: Labels): boolean {
  return labels !== null && matchesSelector(labels, selector);
}
