import { z } from 'zod';
import type { Person } from './identity-provider.ts';

const Claims = z.looseObject({
  sub: z.string(),
  email: z.string().optional(),
  email_verified: z.union([z.boolean(), z.string()]).optional(),
  name: z.string().optional(),
  preferred_username: z.string().optional(),
});

/**
 * Reads the claims of OpenID Connect. An email that the provider calls unverified is left out: anyone who registers there
 * could claim it, and policies decide by it.
 */
export function personOf(claims: unknown): Person {
  const {
    sub,
    email = '',
    email_verified: isVerified = true,
    name,
    preferred_username: username,
  } = Claims.parse(claims);
  return {
    subject: sub,
    email: isVerified === true || isVerified === 'true' ? email : '',
    name: name ?? username ?? '',
  };
}
