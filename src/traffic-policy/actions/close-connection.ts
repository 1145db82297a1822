import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import type { PreparedAction } from '../steps.ts';
import { CLOSE } from './deny.ts';

/** Closes the client's connection without a response. */
export function closeConnection(config: unknown, _context: ActionContext): PreparedAction {
  parseConfig(z.strictObject({}), config);
  return { ends: true, on_tcp_connect: () => () => CLOSE, on_http_request: () => () => CLOSE };
}
