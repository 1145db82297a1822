import { ApiError, messageOf, OperatorError } from '../lib/errors.ts';
import { isCloudAddress } from '../settings/agent-settings.ts';
import type { GatewayLinks } from './api/share-links-router.ts';
import { AgentError, RETRY_AFTER_S } from './errors/agent-error.ts';
import type { ApiAccess } from './join/gateway-calls.ts';

/** The gateway's code for an id that it does not know. */
const UNKNOWN_ID = 'ERR_NGROK_222';

/** Asks the gateway, by its management API, for share links to this agent's tunnels. */
export class ShareLinks implements GatewayLinks {
  /** @param access null before the agent has connected for the first time */
  constructor(private readonly access: () => ApiAccess | null) {}

  create(sent: Parameters<GatewayLinks['create']>[0]) {
    return this.#ask((links) => links.create(sent));
  }

  list() {
    return this.#ask((links) => links.list());
  }

  revoke(id: string) {
    return this.#ask((links) => links.revoke(id));
  }

  /** @throws {ApiError} also for refusals of the gateway */
  async #ask<T>(work: (links: GatewayLinks) => Promise<T>): Promise<T> {
    const access = this.access();
    if (access === null) throw offline('the agent has not connected yet');
    if (isCloudAddress(access.serverAddr)) {
      const problem = "share links need a gateway of your own: ngrok's cloud does not have them";
      throw new AgentError('ERR_AGENT_NOT_SHAREABLE', problem);
    }
    // Loaded on demand: few agents make links.
    const { shareLinksAt, EnrolmentRefused } = await import('./join/gateway-calls.ts');
    try {
      return await work(await shareLinksAt(access));
    } catch (error) {
      if (error instanceof EnrolmentRefused) throw refusalOf(error);
      if (error instanceof OperatorError) throw new AgentError('ERR_AGENT_NOT_SHAREABLE', error.message);
      throw offline(`cannot reach the management API of the gateway: ${messageOf(error)}`, error);
    }
  }
}

function refusalOf({ code, reason }: { code: string | null; reason: string }): ApiError {
  if (code === UNKNOWN_ID) {
    return new AgentError(
      'ERR_AGENT_SHARE_LINK_NOT_FOUND',
      'no share link to a tunnel that is online here has this id',
    );
  }
  return new ApiError(502, code ?? 'ERR_AGENT_GATEWAY_REFUSED', reason);
}

function offline(problem: string, cause?: unknown): AgentError {
  return new AgentError('ERR_AGENT_OFFLINE', `${problem}; try again`, { retryAfter: RETRY_AFTER_S, cause });
}
