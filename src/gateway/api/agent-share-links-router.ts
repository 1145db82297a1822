import type { Request, Router } from 'express';
import type { Clock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import {
  AGENT_SHARE_LINKS_LIST_PATH,
  AGENT_SHARE_LINKS_PATH,
  AGENT_SHARE_LINKS_REVOKE_PATH,
  AgentShareLinkCreate,
  AgentShareLinkList,
  AgentShareLinkRevoke,
  shareLinks,
} from '../../management/resources/share-link.ts';
import { credentialOf } from '../access/authtoken-authentication.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { endpointOwner, makeShareLink, revokeShareLink } from '../share-links/share-links.ts';
import type { CredentialRow } from '../store/accounts.ts';
import type { ShareLinkRow } from '../store/share-links.ts';
import { showShareLink } from './actions/share-link-actions.ts';
import type { ApiContext } from './api-context.ts';
import { type FailedAttempts, type RefusesAddress, refuseSlowly } from './authentication.ts';
import type { Handler } from './handler.ts';
import { strictRouter } from './operation-router.ts';
import { readBody, refuse, unknownId } from './request.ts';

/** What the agents of one authtoken may ask for. */
const OF_AUTHTOKEN: RateLimit = { requests: 60, windowMs: 60_000 };

interface AgentRoutes {
  attempts: FailedAttempts;
  isRefused: RefusesAddress;
  clock: Clock;
  /** Run before a request is handled, and read its body. */
  withBody: Handler[];
}

/** The routes for agents, which have an authtoken but no API key: share links to the endpoints that it has online. */
export function agentShareLinksRouter(
  context: ApiContext,
  { attempts, isRefused, clock, withBody }: AgentRoutes,
): Router {
  const { store } = context;
  const rate = new RequestRate(OF_AUTHTOKEN, () => clock.now());
  const agentOf = async (authtoken: string, { ip, socket }: Request): Promise<CredentialRow> => {
    const found = credentialOf(authtoken, store);
    if ('code' in found) return refuseSlowly(attempts, refuse(403, found.code, found.text), ip);
    if (isRefused('agent', socket)) throw refuse(403, 115, 'an IP restriction does not allow agents at your address');
    const retryAfter = rate.take(found.id);
    if (retryAfter === null) return found;
    throw refuse(429, 226, `the authtoken asks for share links too often; wait ${retryAfter} s`, { retryAfter });
  };
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
  const own = live.endpoints().filter(({ credentialId }) => credentialId === agent.id);
  const hosts = new Set(own.filter(({ proto, internal }) => proto === 'https' && !internal).map(({ host }) => host));
  const owner = endpointOwner({ ownerId: agent.owner_id, credentialId: agent.id });
  return store.shareLinks.ofOwner(owner).filter(({ host }) => coveringNames(host).some((name) => hosts.has(name)));
}
