import type { Request, RequestHandler, Response, Router } from 'express';
import { type BrowserSessions, forgetSession, keepSession, sessionIn } from '../../../lib/http/browser-sessions.ts';
import type { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { isOwnPage } from '../../../lib/http/origin-check.ts';
import { ownCommand } from '../../../lib/process/own-command.ts';
import { AgentError } from '../../errors/agent-error.ts';
import { type Handlers, serve } from '../agent-routes.ts';
import { admit, type TokenGate } from '../bearer-auth.ts';
import { type PageAccess, SESSION_ROUTES } from './page-routes.ts';

/** `/page/session` where no session is needed or supported. */
export function fixedAccessRouter(access: 'open' | 'insecure'): Router {
  return serve({ access: SESSION_ROUTES.access }, { access: ({ res }) => accessAs(res, access) });
}

/** `/page/session`: sign in and out; `/page/sessions`: sign out everywhere. */
export function signInRouter({
  gate,
  sessions,
  codes,
}: {
  gate: TokenGate;
  sessions: BrowserSessions;
  codes: OneTimeCodes;
}): Router {
  const isSignedIn = (req: Request) => openSession(req, sessions) !== null;
  const handlers: Handlers<typeof SESSION_ROUTES> = {
    access: ({ req, res }) => accessAs(res, isSignedIn(req) && isOwnPage(req) ? 'signed-in' : 'sign-in'),
    signIn: async ({ req, res, body: given }) => {
      if ('token' in given) gate.checkToken(req, given.token);
      else if (codes.use(gate.token(), given.code) === null) {
        throw gate.wrong(req, `link used or expired: create a new one with: ${ownCommand('page')}`);
      }
      // A session that somebody else may know ends here.
      await sessions.end(sessionIn(req) ?? '');
      keepSession(res, await sessions.start());
    },
    signOut: async ({ req, res }) => {
      forgetSession(res);
      await sessions.end(sessionIn(req) ?? '');
    },
    signOutEverywhere: async ({ req, res }) => {
      if (!isSignedIn(req)) throw new AgentError('ERR_AGENT_UNAUTHORIZED', 'not signed in');
      forgetSession(res);
      await sessions.endAll();
    },
  };
  return serve(SESSION_ROUTES, handlers, [ownPage]);
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

function accessAs(res: Response, access: PageAccess): { access: PageAccess } {
  res.set('Cache-Control', 'no-store');
  return { access };
}
