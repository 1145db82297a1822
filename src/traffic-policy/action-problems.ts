import type { z } from 'zod';
import { formatPath, MISSING, validationMessage } from '../lib/validation-messages.ts';
import { type PolicyProblem, PolicyRefused, refusal } from './policy-errors.ts';

/** @throws {PolicyRefused} with all problems and their codes of ngrok's catalogue */
export function parseConfig<Schema extends z.ZodType>(schema: Schema, config: unknown): z.output<Schema> {
  if (config !== undefined && config !== null && (typeof config !== 'object' || Array.isArray(config))) {
    throw refusal('ERR_NGROK_2203', 'must be an object', 'config');
  }
  const parsed = schema.safeParse(config ?? {}, { error: validationMessage });
  if (parsed.success) return parsed.data;
  throw new PolicyRefused(parsed.error.issues.map((issue) => problemOf(issue)));
}

/** @throws {PolicyRefused} for an endpoint without a name, whose neighbours' agents browsers would send its cookies, too */
export function requireOwnCookies({ ports }: { readonly ports: { readonly hasOwnCookies: boolean } }): void {
  if (ports.hasOwnCookies) return;
  throw refusal(
    'ERR_NGROK_2204',
    'needs a gateway with a domain: this endpoint has a port of an address, and browsers send the cookies of one port to all; use basic-auth, jwt-validation or a client certificate',
    'type',
  );
}

function problemOf(issue: z.core.$ZodIssue): PolicyProblem {
  return { code: codeOf(issue), place: formatPath(['config', ...issue.path]), message: issue.message };
}

const TOO_SMALL = new Map<string, string>([
  ['string', 'ERR_NGROK_2237'],
  ['array', 'ERR_NGROK_2223'],
]);

const TOO_BIG = new Map<string, string>([
  ['string', 'ERR_NGROK_2221'],
  ['array', 'ERR_NGROK_2218'],
]);

function codeOf(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'custom':
      return typeof issue.params?.ngrok === 'string' ? issue.params.ngrok : 'ERR_NGROK_2204';
    case 'invalid_type':
      return issue.message.startsWith(MISSING) ? 'ERR_NGROK_2234' : 'ERR_NGROK_2228';
    case 'unrecognized_keys':
      return 'ERR_NGROK_2203';
    case 'invalid_value':
      return 'ERR_NGROK_2222';
    case 'too_small':
      return TOO_SMALL.get(issue.origin) ?? 'ERR_NGROK_2215';
    case 'too_big':
      return TOO_BIG.get(issue.origin) ?? 'ERR_NGROK_2215';
    case 'invalid_key':
      return 'ERR_NGROK_2210';
    default:
      return 'ERR_NGROK_2204';
  }
}
