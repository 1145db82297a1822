import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Handler } from '../../lib/http-router.ts';
import { clientNetwork } from '../../lib/ip-address.ts';
import { AgentError } from '../errors/agent-error.ts';
import { AttemptLimiter } from './attempt-limiter.ts';

export interface BearerAuthOptions {
  /** The one that is in force now. */
  token: () => string;
  /** Who sends a request, for slowing down wrong attempts; see {@link directClient} and {@link forwardedClient}. */
  clientOf: (req: IncomingMessage) => string;
  attempts?: AttemptLimiter;
}

/** Lets only requests through that carry the token. */
export function bearerAuth({ token, clientOf, attempts = new AttemptLimiter() }: BearerAuthOptions): Handler {
  return (req, res, next) => {
    const given = /^Bearer +(\S+)$/i.exec(req.headers.authorization ?? '')?.[1];
    res.setHeader('WWW-Authenticate', 'Bearer realm="device-agent"');
    // Without a token nothing is guessed: whoever only forgot it gets told so, always.
    if (given === undefined) throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'send Authorization: Bearer <token>');
    const client = clientOf(req);
    const wait = attempts.waitFor(client);
    if (wait > 0) {
      throw new AgentError('ERR_AGENT_TOO_MANY_ATTEMPTS', 'too many wrong tokens; try again later', {
        retryAfter: Math.ceil(wait / 1_000),
      });
    }
    if (!timingSafeEqual(digest(given), digest(token()))) {
      attempts.failed(client);
      throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'the token is wrong');
    }
    res.removeHeader('WWW-Authenticate');
    next();
  };
}

/** The peer of the connection. */
export function directClient(req: IncomingMessage): string {
  return clientNetwork(req.socket.remoteAddress ?? '');
}

/** The last address in X-Forwarded-For, which the gateway wrote; what stands before it anyone may have. */
export function forwardedClient(req: IncomingMessage): string {
  const addresses = String(req.headers['x-forwarded-for'] ?? '').split(',');
  return clientNetwork(addresses.at(-1)?.trim().slice(0, 45) ?? '');
}

/** Digests are of one length, so that comparing them tells nothing about the token. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
