import { z } from 'zod';
import { validationMessage } from '../../lib/validation-messages.ts';
import { AgentError } from '../errors/agent-error.ts';
import { problemsOf } from '../tunnels/problems.ts';

/** @throws {AgentError} 400 that lists everything the schema finds wrong */
export function parseInput<T extends z.ZodType>(schema: T, input: unknown): z.output<T> {
  const parsed = schema.safeParse(input, { error: validationMessage });
  if (parsed.success) return parsed.data;
  const details = problemsOf(parsed.error);
  const [[place, problem] = [], ...others] = Object.entries(details);
  const more = others.length > 0 ? ` (and ${others.length} more, see details)` : '';
  throw new AgentError('ERR_AGENT_INVALID_REQUEST', `${place}: ${problem}${more}`, { details });
}

/** Describes the query parameters of a path; all others are refused. */
export function querySchema<Shape extends z.core.$ZodLooseShape>(shape: Shape) {
  const names = Object.keys(shape).join(', ') || 'none';
  return z.strictObject(shape, {
    error: ({ code }) => (code === 'unrecognized_keys' ? `unknown query parameter; supported: ${names}` : undefined),
  });
}
