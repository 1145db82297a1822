import { createHash, timingSafeEqual } from 'node:crypto';

/**
 * What is kept of a token. One round of SHA-256 suffices: the secret is 128 random bits, so there is no dictionary to
 * try, and a slow hash would only make every request slow.
 */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

/** Whether a presented secret is the one whose hash is kept. */
export function secretMatches(secret: string, hash: Buffer): boolean {
  return timingSafeEqual(hashSecret(secret), hash);
}
