import type { Router } from 'express';
import { z } from 'zod';
import { TimesAway } from '../../agent-protocol/messages.ts';
import type { RateLimit } from '../../lib/time/token-bucket.ts';
import { AGENT_TIMES_AWAY_PATH } from '../../management/resources/history.ts';
import { type AgentRoutes, agentAccess } from './agent-access.ts';
import type { ApiContext } from './api-context.ts';
import { strictRouter } from './operation-router.ts';
import { readBody } from './request.ts';

/** What the agents of one authtoken may say: a day is four requests. */
const OF_AUTHTOKEN: RateLimit = { requests: 20, windowMs: 600_000 };

const TimesAwayReport = z.strictObject({ authtoken: z.string().max(256), ...TimesAway.shape });

/** The route for agents that say when they ran without a session; those with the native connector say it in their session. */
export function agentTimesAwayRouter(context: ApiContext, routes: AgentRoutes): Router {
  const agentOf = agentAccess(context, routes, OF_AUTHTOKEN, 'their history');
  const router = strictRouter();
  router.post(AGENT_TIMES_AWAY_PATH, ...routes.withBody, async (req, res) => {
    const { authtoken, ...times } = readBody(TimesAwayReport, 'POST', req.body);
    const { id } = await agentOf(authtoken, req);
    context.history?.wasAway(id, times);
    res.status(204).end();
  });
  return router;
}
