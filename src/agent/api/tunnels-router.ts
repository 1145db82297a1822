import type { Router } from 'express';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import type { RefreshUpstreams } from '../upstreams/upstream-monitor.ts';
import { TUNNEL_OPERATIONS } from './operations.ts';
import { presentCreated, presentDetail, presentItem } from './present.ts';
import { serve } from './routes.ts';

/**
 * `/tunnels`: list, start, show, change and delete.
 *
 * @param refreshUpstreams checks upstreams that were not checked lately
 */
export function tunnelsRouter(tunnels: TunnelManager, refreshUpstreams: RefreshUpstreams): Router {
  return serve(TUNNEL_OPERATIONS, {
    listTunnels: async ({ query: { protocol } }) => {
      await refreshUpstreams();
      const views = tunnels.list().filter(({ tunnel }) => protocol === undefined || tunnel.protocol === protocol);
      return views.map((view) => presentItem(view, tunnels));
    },
    startTunnel: async ({ body }) => {
      const notices: string[] = [];
      const view = await tunnels.create(body, (text) => notices.push(text));
      await refreshUpstreams(tunnels.reports.health(view) ?? undefined);
      const ofUpstream = tunnels.reports.notice(view);
      if (ofUpstream !== null) notices.push(ofUpstream);
      return presentCreated(view, notices.length > 0 ? notices.join('; ') : null);
    },
    getTunnel: async ({ req }) => {
      await refreshUpstreams();
      return presentDetail(tunnels.find(req.params.url_part), tunnels);
    },
    changeTunnel: async ({ body, req }) => {
      const view = tunnels.find(req.params.url_part);
      await tunnels.change(view, body);
      if (body.forwards_to) await refreshUpstreams(tunnels.reports.health(view) ?? undefined);
      return presentDetail(view, tunnels);
    },
    deleteTunnel: ({ req }) => tunnels.remove(tunnels.find(req.params.url_part)),
  });
}
