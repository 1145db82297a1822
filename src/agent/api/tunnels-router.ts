import { Router } from 'express';
import { z } from 'zod';
import { TUNNEL_PROTOCOLS } from '../connectors/connector.ts';
import { TunnelChange, TunnelRequest } from '../tunnels/tunnel.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import type { RefreshUpstreams } from '../upstreams/upstream-monitor.ts';
import { methodNotAllowed } from './error-handler.ts';
import { jsonBody } from './json-body.ts';
import { noQuery, parseInput, querySchema } from './parse-input.ts';
import { presentCreated, presentDetail, presentItem } from './present.ts';

export const ListQuery = querySchema({ protocol: z.enum(TUNNEL_PROTOCOLS).optional() });

/**
 * `/tunnels`: list, start, show, change and delete.
 *
 * @param refreshUpstreams checks upstreams that were not checked lately
 */
export function tunnelsRouter(tunnels: TunnelManager, refreshUpstreams: RefreshUpstreams): Router {
  const router = Router();
  router
    .route('/tunnels')
    .get(async (req, res) => {
      const { protocol } = parseInput(ListQuery, req.query);
      await refreshUpstreams();
      const views = tunnels.list().filter(({ tunnel }) => protocol === undefined || tunnel.protocol === protocol);
      res.json(views.map((view) => presentItem(view, tunnels)));
    })
    .post(noQuery, ...jsonBody, async (req, res) => {
      const notices: string[] = [];
      const view = await tunnels.create(parseInput(TunnelRequest, req.body), (text) => notices.push(text));
      await refreshUpstreams(tunnels.reports.health(view) ?? undefined);
      const ofUpstream = tunnels.reports.notice(view);
      if (ofUpstream !== null) notices.push(ofUpstream);
      res.json(presentCreated(view, notices.length > 0 ? notices.join('; ') : null));
    })
    .all(methodNotAllowed('GET, HEAD, POST'));
  router
    .route('/tunnels/:url_part')
    .get(noQuery, async (req, res) => {
      await refreshUpstreams();
      res.json(presentDetail(tunnels.find(req.params.url_part), tunnels));
    })
    .patch(noQuery, ...jsonBody, async (req, res) => {
      const change = parseInput(TunnelChange, req.body);
      const view = tunnels.find(req.params.url_part);
      await tunnels.change(view, change);
      if (change.forwards_to) await refreshUpstreams(tunnels.reports.health(view) ?? undefined);
      res.json(presentDetail(view, tunnels));
    })
    .delete(noQuery, async (req, res) => {
      await tunnels.remove(tunnels.find(req.params.url_part));
      res.status(204).end();
    })
    .all(methodNotAllowed('GET, HEAD, PATCH, DELETE'));
  return router;
}
