import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { RequestHandler, Response } from 'express';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { TokenBuckets } from '../../lib/time/token-bucket.ts';
import { AgentError } from '../errors/agent-error.ts';

/** Wrong attempts of a client that get an ordinary answer; one more every two seconds. */
const ATTEMPTS = { burst: 5, perMs: 1 / 2_000 };
const MAX_CLIENTS = 1_024;

/**
 * Lets in who knows the API token, and slows down who guesses it. The right token always works, even from an address that
 * others guess from. So a guesser learns of each token whether it is right; 192 bits are safe from any number of guesses.
 */
export class TokenGate {
  readonly token: () => string;
  readonly #clientOf: (req: IncomingMessage) => string;
  readonly #attempts = new TokenBuckets(ATTEMPTS, MAX_CLIENTS);
  readonly #now: () => number;

  constructor({
    token,
    clientOf,
    now = () => performance.now(),
  }: {
    token: () => string;
    /** Identifies the client whose wrong attempts are slowed down: {@link directClient} or {@link forwardedClient}. */
    clientOf: (req: IncomingMessage) => string;
    /** Milliseconds that only grow. */
    now?: () => number;
  }) {
    this.token = token;
    this.#clientOf = clientOf;
    this.#now = now;
  }

  /** @throws {AgentError} 401 or 429 unless the token is the right one */
  checkToken(req: IncomingMessage, given: string): void {
    if (!timingSafeEqual(digest(given), digest(this.token()))) throw this.wrong(req, 'wrong API token');
  }

  /**
   * Counts a wrong attempt. Call this after the comparison: guessers behind the owner's address must not lock the owner out.
   */
  wrong(req: IncomingMessage, problem: string): AgentError {
    const now = this.#now();
    const attempts = this.#attempts.of(this.#clientOf(req), now);
    if (!attempts.tryTake(now)) {
      return new AgentError('ERR_AGENT_TOO_MANY_ATTEMPTS', 'too many wrong API tokens: retry later', {
        retryAfter: Math.ceil(attempts.waitMs(1, now) / 1_000),
      });
    }
    return new AgentError('ERR_AGENT_UNAUTHORIZED', problem);
  }
}

/** Remembers how to find out whether the caller would still be let in: streams outlive the request. */
export function admit(res: Response, admissionCheck: () => boolean): void {
  res.locals.admissionOf = admissionCheck;
}

/** See {@link admit}; always where no one needs to prove anything. */
export function admissionCheck(res: Response): () => boolean {
  return res.locals.admissionOf ?? (() => true);
}

export function bearerAuth(gate: TokenGate): RequestHandler {
  return (req, res, next) => {
    const given = /^Bearer +(\S+)$/i.exec(req.headers.authorization ?? '')?.[1];
    res.set('WWW-Authenticate', 'Bearer realm="device-agent"');
    // A request without a token guesses nothing, so it never counts as an attempt.
    if (given === undefined) {
      throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'API token missing: send Authorization: Bearer <token>');
    }
    gate.checkToken(req, given);
    res.removeHeader('WWW-Authenticate');
    const token = gate.token();
    admit(res, () => gate.token() === token);
    next();
  };
}

export function directClient(req: IncomingMessage): string {
  return clientNetwork(req.socket.remoteAddress ?? '');
}

/** The last address in X-Forwarded-For, which the gateway wrote; clients can make up those before it. */
export function forwardedClient(req: IncomingMessage): string {
  const addresses = String(req.headers['x-forwarded-for'] ?? '').split(',');
  return clientNetwork(trimSpace(addresses.at(-1) ?? '').slice(0, 45));
}

/** Digests have one length, so comparing them reveals nothing about the token. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
