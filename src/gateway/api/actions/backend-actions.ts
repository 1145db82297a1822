import { httpResponseBackends, tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { tunnels } from '../../../management/resources/tunnel.ts';
import type { LiveTunnel, LiveView } from '../../endpoints/live-view.ts';
import { type Labels, matchesSelector } from '../../endpoints/online-endpoint.ts';
import type { ApiContext } from '../api-context.ts';
import { storedActions } from './stored-actions.ts';

export function backendActions(context: ApiContext) {
  const { store, live, links } = context;
  return {
    // Can be deleted while an edge uses it: the edge keeps the dangling reference, as at ngrok.
    httpResponseBackends: storedActions(context, {
      resource: httpResponseBackends,
      rows: store.httpResponseBackends,
      make: (common, { body = '', headers = null, status_code = 200 }) => ({ ...common, body, headers, status_code }),
    }),
    tunnelGroupBackends: storedActions(context, {
      resource: tunnelGroupBackends,
      rows: store.tunnelGroupBackends,
      shown: (row) => ({
        ...row,
        uri: links.of(tunnelGroupBackends, row.id),
        tunnels: tunnelsWith(live, row.labels).map(({ id }) => links.ref(tunnels, id)),
      }),
      make: (common, { labels = {} }) => ({ ...common, labels }),
    }),
  };
}

function tunnelsWith(live: LiveView, selector: Labels): LiveTunnel[] {
  return [...live.find.tunnelsWith(selector)];
}

export function matchesLabels({ labels }: LiveTunnel, selector: Labels): boolean {
  return labels !== null && matchesSelector(labels, selector);
}
