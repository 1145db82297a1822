import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { RequestHandler } from 'express';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { AgentError } from '../errors/agent-error.ts';
import { AttemptLimiter } from './attempt-limiter.ts';

export interface BearerAuthOptions {
  token: () => string;
  /** Identifies the client whose wrong attempts are slowed down: {@link directClient} or {@link forwardedClient}. */
  clientOf: (req: IncomingMessage) => string;
  attempts?: AttemptLimiter;
}

export function bearerAuth({ token, clientOf, attempts = new AttemptLimiter() }: BearerAuthOptions): RequestHandler {
  const refuse = (client: string): AgentError => {
    const wait = attempts.waitFor(client);
    if (wait > 0) {
      return new AgentError('ERR_AGENT_TOO_MANY_ATTEMPTS', 'too many wrong API tokens: retry later', {
        retryAfter: Math.ceil(wait / 1_000),
      });
    }
    attempts.failed(client);
    return new AgentError('ERR_AGENT_UNAUTHORIZED', 'wrong API token');
  };
  return (req, res, next) => {
    const given = /^Bearer +(\S+)$/i.exec(req.headers.authorization ?? '')?.[1];
    res.set('WWW-Authenticate', 'Bearer realm="device-agent"');
    // A request without a token guesses nothing, so it never counts as an attempt.
    if (given === undefined) {
      throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'API token missing: send Authorization: Bearer <token>');
    }
    // Compared first: guessers behind the owner's address must not lock the owner out.
    if (!timingSafeEqual(digest(given), digest(token()))) throw refuse(clientOf(req));
    res.removeHeader('WWW-Authenticate');
    next();
  };
}

export function directClient(req: IncomingMessage): string {
  return clientNetwork(req.socket.remoteAddress ?? '');
}

/** The last address in X-Forwarded-For, which the gateway wrote; clients can make up those before it. */
export function forwardedClient(req: IncomingMessage): string {
  const addresses = String(req.headers['x-forwarded-for'] ?? '').split(',');
  return clientNetwork(addresses.at(-1)?.trim().slice(0, 45) ?? '');
}

/** Digests have one length, so comparing them reveals nothing about the token. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
