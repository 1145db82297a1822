import type { Router } from 'express';
import { z } from 'zod';
import type { RateLimit } from '../../lib/time/token-bucket.ts';
import { AGENT_CAS_PATH } from '../../management/resources/device.ts';
import { type AgentRoutes, agentAccess } from './agent-access.ts';
import type { ApiContext } from './api-context.ts';
import { strictRouter } from './operation-router.ts';
import { readBody } from './request.ts';

/** Limit of the requests of one authtoken's agents: a change of the CA takes two. */
const OF_AUTHTOKEN: RateLimit = { requests: 20, windowMs: 600_000 };
const MAX_CAS = 8;

const TrustedCasReport = z.strictObject({
  authtoken: z.string().max(256),
  cas: z.array(z.string().regex(/^[\w-]{1,64}$/)).max(MAX_CAS),
});

/** The route for agents that say which CAs of the gateway they trust now. */
export function agentCasRouter(context: ApiContext, routes: AgentRoutes): Router {
  const { store } = context;
  const agentOf = agentAccess(context, routes, OF_AUTHTOKEN, 'CA reports');
  const router = strictRouter();
  router.post(AGENT_CAS_PATH, ...routes.withBody, async (req, res) => {
    const { authtoken, cas } = readBody(TrustedCasReport, 'POST', req.body);
    const { id } = await agentOf(authtoken, req);
    // An agent that has not joined is no device.
    if (store.devices.byCredential(id) !== null) {
      await store.database.write(() => {
        const device = store.devices.byCredential(id);
        if (device !== null) store.devices.update({ ...device, trusted_cas: cas });
      }, null);
    }
    res.status(204).end();
  });
  return router;
}
