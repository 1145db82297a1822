import type { X509Certificate } from 'node:crypto';

const DAY = 24 * 60 * 60 * 1000;
const CA_LIFE = 10 * 365 * DAY;
/** A CA this close to its end is certified anew when the gateway starts, so that leaves always fit into it. */
const CA_RENEW_BEFORE = 2 * 365 * DAY;
/** Browsers refuse certificates of servers that are valid any longer. */
const LEAF_LIFE = 397 * DAY;
const LEAF_RENEW_BEFORE = 30 * DAY;
/** Clocks of clients may be behind ours. */
const BACKDATING = DAY;

/**
 * Earlier than this the clock is wrong: a device without a battery-backed clock starts in 1970 and
 * learns the time from the network, minutes later or never.
 */
const EARLIEST_PLAUSIBLE = Date.parse('2025-01-01T00:00:00Z');

/** From when until when a certificate holds. */
export interface Validity {
  notBefore: Date;
  notAfter: Date;
}

/** Whether the clock can be right. */
export function isPlausible(now: number): boolean {
  return now >= EARLIEST_PLAUSIBLE;
}

/** For a CA: from 1970 on, so that it verifies on a client whose clock stands there, too. */
export function caValidity(now: number): Validity {
  return { notBefore: new Date(0), notAfter: new Date(Math.max(now, EARLIEST_PLAUSIBLE) + CA_LIFE) };
}

/** Whether a CA is to be certified anew. */
export function isCaDue(ca: X509Certificate, now: number): boolean {
  return Date.parse(ca.validTo) - now < CA_RENEW_BEFORE;
}

/**
 * For a leaf. With a clock that is plainly wrong, it has to do both for clients that share it and for those
 * that know the time: it lasts as long as the CA then, and is replaced once the clock is right.
 */
export function leafValidity(now: number, caEnd: Date): Validity {
  if (!isPlausible(now)) return { notBefore: new Date(0), notAfter: caEnd };
  const notBefore = now - BACKDATING;
  return { notBefore: new Date(notBefore), notAfter: new Date(Math.min(notBefore + LEAF_LIFE, caEnd.getTime())) };
}

/** When a leaf is to be replaced, in milliseconds since 1970. */
export function leafRenewal(leaf: X509Certificate): number {
  if (Date.parse(leaf.validFrom) === 0) return EARLIEST_PLAUSIBLE;
  return Date.parse(leaf.validTo) - LEAF_RENEW_BEFORE;
}
