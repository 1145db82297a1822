import { createHmac, timingSafeEqual } from 'node:crypto';

export interface Webhook {
  readonly method: string;
  /** The URL that the sender used, with scheme and host. */
  readonly url: string;
  readonly body: Buffer;
  readonly contentType: string;
  readonly secret: string;
  /** Milliseconds since 1970. */
  readonly nowMs: number;
  /** The first value of a header, by its lower-case name; empty when it is missing. */
  header(name: string): string;
  fetch(url: string, maxBytes: number): Promise<Buffer>;
  /** Logs a problem that the sender does not need to know. */
  note(problem: string): void;
  /** Runs work that follows a wait, so that it is charged like the rest. */
  measured<T>(work: () => T): T;
}

/** @returns why a webhook is not trusted, without quoting it; null when it is genuine */
export type Verify = (webhook: Webhook) => string | null | Promise<string | null>;

/** No provider documents a maximum age; most of their libraries use this one. */
const TOLERANCE_S = 5 * 60;

export const NO_SIGNATURE = 'the signature is missing';
export const WRONG_SIGNATURE = 'the signature is wrong';
export const TOO_OLD = 'it was signed too long ago, or in the future';

export function hmac(algorithm: 'sha1' | 'sha256', key: string | Buffer, ...parts: (string | Buffer)[]): Buffer {
  const mac = createHmac(algorithm, key);
  for (const part of parts) mac.update(part);
  return mac.digest();
}

/** Compares in constant time. */
export function isEqual(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

/** @param seconds since 1970, from the sender */
export function isRecent(seconds: string, { nowMs }: Webhook): boolean {
  return /^\d{1,12}$/.test(seconds) && Math.abs(nowMs / 1000 - Number(seconds)) <= TOLERANCE_S;
}
