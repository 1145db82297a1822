import { type Request, type RequestHandler, type Response, Router } from 'express';
import { z } from 'zod';
import type { BrowserSessions } from '../../../lib/http/browser-sessions.ts';
import type { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { forgetSession, isOwnPage, keepSession, sessionIn } from '../../../lib/http/session-cookie.ts';
import { AgentError } from '../../errors/agent-error.ts';
import { admit, type TokenGate } from '../bearer-auth.ts';
import { methodNotAllowed } from '../error-handler.ts';
import { jsonBody } from '../json-body.ts';
import { noQuery, parseInput } from '../parse-input.ts';

/**
 * How the page gets at the API: without a token, by a session, by signing in first, or not at all, because the address has no
 * TLS and the browser would keep no cookie.
 */
export type PageAccess = 'open' | 'signed-in' | 'sign-in' | 'insecure';

export interface SignInOptions {
  gate: TokenGate;
  sessions: BrowserSessions;
  codes: OneTimeCodes;
}

const SignIn = z.union(
  [z.strictObject({ token: z.string().max(4_096) }), z.strictObject({ code: z.string().max(256) })],
  {
    error: 'must be {"token": "<API token>"} or {"code": "<one-time code>"}',
  },
);

/** `/page/session` and `/page/sessions` where no session is needed or supported. */
export function fixedAccessRouter(access: 'open' | 'insecure'): Router {
  const router = Router();
  router
    .route('/page/session')
    .get(noQuery, (_req, res) => void sendAccess(res, access))
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}

/** `/page/session`: sign in and out; `/page/sessions`: sign out everywhere. */
export function signInRouter({ gate, sessions, codes }: SignInOptions): Router {
  const router = Router();
  const isSignedIn = (req: Request) => openSession(req, sessions) !== null;
  router
    .route('/page/session')
    .get(noQuery, (req, res) => void sendAccess(res, isSignedIn(req) && isOwnPage(req) ? 'signed-in' : 'sign-in'))
    .post(noQuery, ownPage, ...jsonBody, async (req, res) => {
      const given = parseInput(SignIn, req.body);
      if ('token' in given) gate.checkToken(req, given.token);
      else if (!codes.use(gate.token(), given.code)) {
        throw gate.wrong(req, 'link used or expired: create a new one with: device-agent page');
      }
      // A session that somebody else may know ends here.
      await sessions.end(sessionIn(req) ?? '');
      keepSession(res, await sessions.start());
      res.status(204).end();
    })
    .delete(noQuery, ownPage, async (req, res) => {
      forgetSession(res);
      await sessions.end(sessionIn(req) ?? '');
      res.status(204).end();
    })
    .all(methodNotAllowed('GET, HEAD, POST, DELETE'));
  router
    .route('/page/sessions')
    .delete(noQuery, ownPage, async (req, res) => {
      if (!isSignedIn(req)) throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'not signed in');
      forgetSession(res);
      await sessions.endAll();
      res.status(204).end();
    })
    .all(methodNotAllowed('DELETE'));
  return router;
}

/** Lets signed-in pages of this host in; all other requests need what `otherwise` asks for. */
export function sessionAuth(sessions: BrowserSessions, otherwise: RequestHandler): RequestHandler {
  return (req, res, next) => {
    const id = req.headers.authorization === undefined ? openSession(req, sessions) : null;
    if (id === null) return otherwise(req, res, next);
    admit(res, sessions.lasting(id));
    ownPage(req, res, next);
  };
}

/** Refuses requests that a page of another site sends with the cookie of this one. */
const ownPage: RequestHandler = (req, _res, next) => {
  if (!isOwnPage(req)) {
    throw new AgentError('ERR_AGENT_CROSS_SITE', 'cross-site request refused: pages of other sites may not call it');
  }
  next();
};

function openSession(req: Request, sessions: BrowserSessions): string | null {
  const id = sessionIn(req);
  return id !== null && sessions.isOpen(id) ? id : null;
}

function sendAccess(res: Response, access: PageAccess): void {
  res.set('Cache-Control', 'no-store').json({ access });
}
