import { z } from 'zod';
import { DenyConfig } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import { notAdmittedError, type PolicyAnswer, type PolicyClose, type PreparedAction } from '../steps.ts';

const FORBIDDEN = 403;

export const CLOSE: PolicyClose = { kind: 'close' };

/** Rejects a request with an empty response, or closes a connection. People who have signed in get a page that says so. */
export function deny(config: unknown, _context: ActionContext): PreparedAction {
  const { status_code } = parseConfig(DenyConfig, config);
  return {
    ends: true,
    on_tcp_connect: () => {
      if (status_code !== undefined) {
        throw refusal('ERR_NGROK_2204', 'is not supported in on_tcp_connect, before any HTTP', 'config.status_code');
      }
      return () => CLOSE;
    },
    on_http_request: () => {
      const status = status_code ?? FORBIDDEN;
      const answer: PolicyAnswer = { kind: 'answer', status, headers: [], body: Buffer.alloc(0), refused: true };
      // With another status, the policy's author has another reason than who it is.
      if (status !== FORBIDDEN) return () => answer;
      return ({ notAdmitted }) => (notAdmitted ? notAdmittedError(notAdmitted()) : answer);
    },
  };
}

export function closeConnection(config: unknown, _context: ActionContext): PreparedAction {
  parseConfig(z.strictObject({}), config);
  return { ends: true, on_tcp_connect: () => () => CLOSE, on_http_request: () => () => CLOSE };
}
