import { createHash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import { allValues } from '../scope/header-map.ts';
import { type PolicyError, type PreparedAction, policyError } from '../steps.ts';
import type { Template } from '../templates.ts';

const MIN_PASSWORD = 8;
const MAX_PASSWORD = 128;

const BasicAuthConfig = z.strictObject({
  credentials: z.array(z.string()).min(1).max(10),
  realm: z
    .string()
    .max(128)
    .refine((realm) => /^[\x20-\x7e]*$/.test(realm), 'is printable ASCII')
    .optional(),
  enforce: z.boolean().optional(),
});

/** Requires a user name and password (RFC 7617). */
export function basicAuth(config: unknown, context: ActionContext): PreparedAction {
  const { credentials, realm = 'ngrok', enforce = true } = parseConfig(BasicAuthConfig, config);
  const accepted = credentials.map((text, at) => acceptedDigest(text, `config.credentials[${at}]`, context));
  const refused = unauthorized(realm);
  return {
    ends: false,
    on_http_request: () => (request) => {
      // With several headers, the upstream might read another one.
      const [header, ...more] = allValues(request.headers, 'authorization');
      const presented = more.length > 0 ? null : presentedCredentials(header);
      const digest = digestOf(presented ?? '');
      let authorized = false;
      // Compares all of them, so that the duration does not reveal which one came close.
      for (const digestFor of accepted) {
        const expected = typeof digestFor === 'function' ? digestFor(context.scopeOf(request)) : digestFor;
        if (timingSafeEqual(digest, expected) && presented !== null) authorized = true;
      }
      context.record(request, 'basic_auth', {
        credentials: {
          presented: presented !== null,
          username: presented?.split(':', 1)[0] ?? '',
          authorized,
        },
      });
      return authorized || !enforce ? undefined : refused;
    },
  };
}

function unauthorized(realm: string): PolicyError {
  const challenge = `Basic realm="${realm.replace(/["\\]/g, '\\$&')}"`;
  const message = 'This endpoint requires a user name and a password.';
  return policyError(401, 'ERR_NGROK_3401', message, ['www-authenticate', challenge]);
}

/** All digests have the same length, which a comparison in constant time requires. */
function digestOf(credentials: string): Buffer {
  return createHash('sha256').update(credentials).digest();
}

/** @returns the digest to compare with, or a function that makes it when it depends on the request */
function acceptedDigest(
  text: string,
  field: string,
  context: ActionContext,
): Buffer | ((scope: PolicyScope) => Buffer) {
  const template = context.template(text, field);
  if (template.constant === null) {
    requireColon(template, field);
    return (scope) => digestOf(requirePassword(template.text(scope)));
  }
  const colon = text.indexOf(':');
  if (colon === -1) throw refusal('ERR_NGROK_2204', 'must be user:password', field);
  const { length } = text.slice(colon + 1);
  if (length < MIN_PASSWORD)
    throw refusal('ERR_NGROK_2257', `the password must have at least ${MIN_PASSWORD} characters`, field);
  if (length > MAX_PASSWORD)
    throw refusal('ERR_NGROK_2258', `the password must have at most ${MAX_PASSWORD} characters`, field);
  return digestOf(text);
}

/** @throws {PolicyFailure} for an empty or short password, for example from an empty variable: it would admit anyone */
function requirePassword(credentials: string): string {
  const colon = credentials.indexOf(':');
  if (colon !== -1 && credentials.length - colon > MIN_PASSWORD) return credentials;
  throw new PolicyFailure('ERR_NGROK_2257', `the credentials need a password of at least ${MIN_PASSWORD} characters`);
}

/** User and password may each be `${…}`, or share one expression with a visible colon outside. */
function requireColon({ parts }: Template, field: string): void {
  if (parts.length === 1 || parts.some((part) => typeof part === 'string' && part.includes(':'))) return;
  throw refusal('ERR_NGROK_2204', 'the colon between user and password must be outside of expressions', field);
}

function presentedCredentials(header: string | undefined): string | null {
  const encoded = header === undefined ? null : /^basic +([A-Za-z0-9+/=_-]{1,4096})$/i.exec(header)?.[1];
  if (!encoded) return null;
  const text = Buffer.from(encoded, 'base64').toString();
  return text.includes(':') ? text : null;
}
