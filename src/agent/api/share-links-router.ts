import { setTimeout as delay } from 'node:timers/promises';
import type { Router } from 'express';
import { ownCommand } from '../../lib/process/own-command.ts';
import { accessOf, takesShareLinks, withShareLinks } from '../../traffic-policy/access.ts';
import { PolicyInput, toTrafficPolicy } from '../../traffic-policy/document.ts';
import { optionsOf } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { requestOf } from '../tunnels/tunnel.ts';
import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import { SHARE_LINK_OPERATIONS, type ShareLinkRequest, TunnelShareLink } from './agent-operations.ts';
import { serve } from './agent-routes.ts';

/** The share links that the gateway keeps for tunnels of this agent. */
export interface GatewayLinks {
  create(sent: Omit<ShareLinkRequest, 'protect'> & { url: string }): Promise<TunnelShareLink>;
  list(): Promise<TunnelShareLink[]>;
  revoke(id: string): Promise<void>;
}

/** Another gateway of a cluster learns of a changed tunnel a moment later. */
const FOLLOW_MS = 500;
const MAX_TRIES = 6;
const NOT_YET: ReadonlySet<unknown> = new Set(['ERR_GATEWAY_NO_SHARE_LINKS', 'ERR_GATEWAY_NOT_ONLINE']);

/** `/share_links` and `/tunnels/{url_part}/share_links`: make, list and revoke. */
export function shareLinksRouter(tunnels: TunnelManager, links: GatewayLinks): Router {
  return serve(SHARE_LINK_OPERATIONS, {
    listShareLinks: async () => (await links.list()).map((link) => TunnelShareLink.parse(link)),
    createShareLink: async ({ body: { protect, ...sent }, req }) => {
      const view = tunnels.find(req.params.url_part);
      const isProtected = await protectedFor(view, protect, tunnels, links);
      const create = () => links.create({ ...sent, url: view.url });
      return TunnelShareLink.parse(await (isProtected ? create() : retried(create)));
    },
    revokeShareLink: ({ req }) => links.revoke(req.params.id),
  });
}

/**
 * Makes the policy of a tunnel take share links.
 *
 * @returns whether it did so before
 * @throws {AgentError} when it does not, and its owner has not asked for it; when this version does not accept the tunnel
 */
async function protectedFor(
  view: TunnelView,
  protect: boolean,
  tunnels: TunnelManager,
  links: GatewayLinks,
): Promise<boolean> {
  const { tunnel } = view;
  if (tunnel.protocol !== 'http' || !view.url.startsWith('https:') || optionsOf(tunnel).binding === 'internal') {
    throw new AgentError('ERR_AGENT_NO_SHARE_LINKS', `only public https tunnels have share links, unlike ${view.url}`);
  }
  const policy = requestOf(tunnel).policy ?? PolicyInput.parse(tunnels.policies.on(tunnel));
  if (takesShareLinks(accessOf(toTrafficPolicy(policy, 'http')))) return true;
  // Fails when the gateway makes no links: a changed policy would be useless, and ends connections.
  await links.list();
  if (!protect) {
    throw new AgentError(
      'ERR_AGENT_NO_SHARE_LINKS',
      `the policy of ${view.url} takes no share links: add the action gateway-share-links to it, or have the agent add ` +
        `it with "protect": true (${ownCommand('share --protect')})`,
    );
  }
  await tunnels.changes.change(view, { policy: PolicyInput.parse(withShareLinks(policy)) });
  return false;
}

async function retried<T>(work: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (tries === MAX_TRIES || !NOT_YET.has((error as { code?: unknown }).code)) throw error;
    }
    await delay(FOLLOW_MS);
  }
}
