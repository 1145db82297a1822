import { createHash, timingSafeEqual } from 'node:crypto';

/**
 * The stored hash of a token. One round of SHA-256 suffices: a secret of 128 random bits cannot be guessed, and a slow hash
 * would slow down every request.
 */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

export function secretMatches(secret: string, hash: Buffer): boolean {
  return timingSafeEqual(hashSecret(secret), hash);
}
