import type { Router } from 'express';
import type { RateLimit } from '../../lib/time/token-bucket.ts';
import {
  AGENT_SHARE_LINKS_LIST_PATH,
  AGENT_SHARE_LINKS_PATH,
  AGENT_SHARE_LINKS_REVOKE_PATH,
  AgentShareLinkCreate,
  AgentShareLinkList,
  AgentShareLinkRevoke,
  shareLinks,
} from '../../management/resources/share-link.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { endpointOwner, makeShareLink, revokeShareLink } from '../share-links/share-links.ts';
import type { CredentialRow } from '../store/accounts.ts';
import type { ShareLinkRow } from '../store/share-links.ts';
import { showShareLink } from './actions/share-link-actions.ts';
import { type AgentRoutes, agentAccess } from './agent-access.ts';
import type { ApiContext } from './api-context.ts';
import { strictRouter } from './operation-router.ts';
import { readBody, unknownId } from './request.ts';

/** What the agents of one authtoken may ask for. */
const OF_AUTHTOKEN: RateLimit = { requests: 60, windowMs: 60_000 };

/** The routes for agents, which have an authtoken but no API key: share links to the endpoints that it has online. */
export function agentShareLinksRouter(context: ApiContext, routes: AgentRoutes): Router {
  const agentOf = agentAccess(context, routes, OF_AUTHTOKEN, 'share links');
  const { withBody } = routes;
  const router = strictRouter();
  router.post(AGENT_SHARE_LINKS_PATH, ...withBody, async (req, res) => {
    const { authtoken, ...sent } = readBody(AgentShareLinkCreate, 'POST', req.body);
    const { id } = await agentOf(authtoken, req);
    const { row, link } = await makeShareLink(context, sent, { by: id, from: req.ip ?? null }, id);
    res.status(201).json({ ...showShareLink(context, row), link });
  });
  router.post(AGENT_SHARE_LINKS_LIST_PATH, ...withBody, async (req, res) => {
    const { authtoken } = readBody(AgentShareLinkList, 'POST', req.body);
    const links = linksOf(await agentOf(authtoken, req), context);
    res.json({ share_links: links.map((row) => showShareLink(context, row)) });
  });
  router.post(AGENT_SHARE_LINKS_REVOKE_PATH, ...withBody, async (req, res) => {
    const { authtoken, id } = readBody(AgentShareLinkRevoke, 'POST', req.body);
    const agent = await agentOf(authtoken, req);
    if (!linksOf(agent, context).some((row) => row.id === id)) throw unknownId(shareLinks);
    await revokeShareLink(context, id, { by: agent.id, from: req.ip ?? null });
    res.status(204).end();
  });
  return router;
}

/** The links to endpoints that an authtoken has online, those of other makers included. */
function linksOf(agent: CredentialRow, { store, live }: ApiContext): ShareLinkRow[] {
  const own = live.find.endpointsOf(agent.id);
  const hosts = new Set(own.filter(({ proto, internal }) => proto === 'https' && !internal).map(({ host }) => host));
  const owner = endpointOwner({ ownerId: agent.owner_id, credentialId: agent.id });
  return store.shareLinks.ofOwner(owner).filter(({ host }) => coveringNames(host).some((name) => hosts.has(name)));
}
