import type { X509Certificate } from 'node:crypto';

const DAY = 24 * 60 * 60 * 1000;
const CA_LIFE = 10 * 365 * DAY;
/** The gateway renews a CA this close to its expiry when it starts, so that it outlives the certificates it issues. */
const CA_RENEW_BEFORE = 2 * 365 * DAY;
/** The longest validity of server certificates that browsers accept. */
const LEAF_LIFE = 397 * DAY;
const LEAF_RENEW_BEFORE = 30 * DAY;
/** Tolerance for clients whose clocks are behind. */
const BACKDATING = DAY;

/** Earlier, the clock is wrong: a device without a clock battery starts in 1970, and gets the time minutes later or never. */
const EARLIEST_PLAUSIBLE = Date.parse('2025-01-01T00:00:00Z');

interface Validity {
  notBefore: Date;
  notAfter: Date;
}

export function isPlausible(now: number): boolean {
  return now >= EARLIEST_PLAUSIBLE;
}

/** The validity of a CA: it starts in 1970, so that clients whose clock is in 1970 accept it too. */
export function caValidity(now: number): Validity {
  return { notBefore: new Date(0), notAfter: new Date(Math.max(now, EARLIEST_PLAUSIBLE) + CA_LIFE) };
}

export function isCaDue(ca: X509Certificate, now: number): boolean {
  return Date.parse(ca.validTo) - now < CA_RENEW_BEFORE;
}

/**
 * The validity of a server certificate. While the clock is in 1970, it must suit clients with the same clock and clients
 * with the right time: it is valid as long as the CA, and replaced once the clock is right.
 */
export function leafValidity(now: number, caEnd: Date): Validity {
  if (!isPlausible(now)) return { notBefore: new Date(0), notAfter: caEnd };
  const notBefore = now - BACKDATING;
  return { notBefore: new Date(notBefore), notAfter: new Date(Math.min(notBefore + LEAF_LIFE, caEnd.getTime())) };
}

/** When a server certificate is due for renewal, in milliseconds since 1970. */
export function leafRenewal(leaf: X509Certificate): number {
  if (Date.parse(leaf.validFrom) === 0) return EARLIEST_PLAUSIBLE;
  return Date.parse(leaf.validTo) - LEAF_RENEW_BEFORE;
}
