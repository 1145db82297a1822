import { createHmac, timingSafeEqual } from 'node:crypto';

/** A webhook's request, as its sender signed it. */
export interface Webhook {
  readonly method: string;
  /** As the sender called it, with scheme and host. */
  readonly url: string;
  readonly body: Buffer;
  readonly contentType: string;
  readonly secret: string;
  /** Milliseconds since 1970. */
  readonly nowMs: number;
  /** The first value of a header, by its lower-case name; empty when there is none. */
  header(name: string): string;
  fetch(url: string, maxBytes: number): Promise<Buffer>;
  /** Tells the gateway's log what the sender need not know. */
  note(problem: string): void;
}

/** @returns why a webhook is not to be trusted, without quoting it; null when it is genuine */
export type Verify = (webhook: Webhook) => string | null | Promise<string | null>;

/** Nobody documents how old a webhook may be; most providers' own libraries say so much. */
const TOLERANCE_S = 5 * 60;

export const NO_SIGNATURE = 'the signature is missing';
export const WRONG_SIGNATURE = 'the signature is wrong';
export const TOO_OLD = 'it was signed too long ago, or in the future';

export function hmac(algorithm: 'sha1' | 'sha256', key: string | Buffer, ...parts: (string | Buffer)[]): Buffer {
  const mac = createHmac(algorithm, key);
  for (const part of parts) mac.update(part);
  return mac.digest();
}

/** Compares in a time that tells nothing of where they differ. */
export function isEqual(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

/** @param seconds since 1970, as the sender wrote them */
export function isRecent(seconds: string, { nowMs }: Webhook): boolean {
  return /^\d{1,12}$/.test(seconds) && Math.abs(nowMs / 1000 - Number(seconds)) <= TOLERANCE_S;
}
