import type { Handler } from '../../lib/http-router.ts';
import { isLoopbackHost } from '../../lib/loopback-host.ts';
import { AgentError } from '../errors/agent-error.ts';

/** Headers by which a proxy or a tunnel tells for whom it asks. */
const FORWARDING = ['forwarded', 'x-forwarded-for', 'x-forwarded-host'];

/**
 * Refuses what only a browser on someone else's page would send: another Host, when a name was made to point
 * here (DNS rebinding), and requests that another site makes. Refuses as well what came through a proxy or a tunnel
 * on this machine: whoever is behind it is not on this machine, and would be let in without a token.
 */
export function hostGuard(): Handler {
  return (req, _res, next) => {
    const { host = '', origin, 'sec-fetch-site': site } = req.headers;
    if (!isLoopbackHost(host.replace(/:\d*$/, ''))) {
      throw new AgentError(
        'ERR_AGENT_HOST_NOT_ALLOWED',
        `call the local API as 127.0.0.1, [::1] or localhost, not ${host}`,
      );
    }
    const forwarding = FORWARDING.find((name) => req.headers[name] !== undefined);
    if (forwarding) {
      throw new AgentError(
        'ERR_AGENT_FORWARDED',
        `the local API answers callers on this machine alone, and ${forwarding} tells of another one; ` +
          "set AGENT_DOMAIN to reach the API at the agent's own domain, with the token",
      );
    }
    const foreign = site !== undefined && site !== 'same-origin' && site !== 'none';
    if (foreign || (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`)) {
      throw new AgentError('ERR_AGENT_CROSS_SITE', 'the local API does not answer pages of other sites');
    }
    next();
  };
}
