import type { RequestHandler } from 'express';
import { isSameOrigin } from '../../lib/http/origin-check.ts';
import { isLoopbackHost } from '../../lib/network/loopback-host.ts';
import { AgentError } from '../errors/agent-error.ts';

/** Headers that proxies, tunnels and content delivery networks add for the client they forward. */
const FORWARDING = /^(?:forwarded|via|x-forwarded.*|x-real-ip|.*-(?:connecting|client)-ip)$/;

/**
 * Refuses requests that only a browser on another site's page sends: a foreign Host (DNS rebinding) and cross-site
 * requests. Also refuses requests that a proxy or tunnel on this machine forwards: their client is elsewhere, and
 * would get in without a token.
 */
export function hostGuard(): RequestHandler {
  return (req, _res, next) => {
    const { host } = req.headers;
    if (host === undefined) {
      throw new AgentError('ERR_AGENT_INVALID_REQUEST', 'malformed request: the Host header is missing');
    }
    if (req.headersDistinct.host?.length !== 1) {
      throw new AgentError('ERR_AGENT_INVALID_REQUEST', 'malformed request: there are several Host headers');
    }
    if (!isLoopbackHost(host.replace(/:\d*$/, ''))) {
      throw new AgentError(
        'ERR_AGENT_HOST_NOT_ALLOWED',
        `host not allowed: ${host}; call the local API as 127.0.0.1, [::1] or localhost`,
      );
    }
    const forwarding = Object.keys(req.headers).find((name) => FORWARDING.test(name));
    if (forwarding) {
      throw new AgentError(
        'ERR_AGENT_FORWARDED',
        `forwarded request refused: the local API only answers callers on this machine, and ${forwarding} names ` +
          "another one; set AGENT_DOMAIN and use the token to call the API at the agent's own domain",
      );
    }
    if (!isSameOrigin(req.headers, 'http')) {
      throw new AgentError('ERR_AGENT_CROSS_SITE', 'cross-site request refused: pages of other sites may not call it');
    }
    next();
  };
}
