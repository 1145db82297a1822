import type { Router } from 'express';
import type { DeviceHistory } from '../history/device-history.ts';
import { TUNNEL_OPERATIONS } from './agent-operations.ts';
import { serve } from './agent-routes.ts';
import { tunnelHistory } from './history-answers.ts';
import type { TunnelActions } from './tunnel-actions.ts';

/** `/tunnels`: list, start, show, change and delete, and their histories. */
export function tunnelsRouter(actions: TunnelActions, history: Pick<DeviceHistory, 'slots'>): Router {
  return serve(TUNNEL_OPERATIONS, {
    listTunnels: async ({ query: { protocol } }) =>
      (await actions.list(protocol)).map(({ created_at: _, ...listed }) => listed),
    startTunnel: ({ body }) => actions.create(body),
    getTunnel: ({ req }) => actions.get(req.params.url_part),
    changeTunnel: ({ body, req }) => actions.change(req.params.url_part, body),
    deleteTunnel: ({ req }) => actions.delete(req.params.url_part),
    getTunnelHistory: ({ req }) => tunnelHistory(history, actions.find(req.params.url_part)),
  });
}
