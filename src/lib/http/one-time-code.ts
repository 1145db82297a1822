import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { BoundedMap } from '../bounded-map.ts';

const VALID_MS = 10 * 60_000;
/** Clocks are set while a device starts; so far ahead, a code may be dated. */
const AHEAD_MS = 60_000;
const MAX_USED = 1_000;
const TIME_BYTES = 6;
const NONCE_BYTES = 12;
const SEAL_BYTES = 20;

/** Validity of a code, in minutes. */
export const CODE_MINUTES = VALID_MS / 60_000;

/**
 * Creates a code that signs one browser in. A holder of the key can create one without asking the server.
 *
 * @param key a secret that the server has too
 * @param now milliseconds since the Unix epoch
 */
export function issueCode(key: string, now: number): string {
  const head = Buffer.alloc(TIME_BYTES + NONCE_BYTES);
  head.writeUIntBE(now, 0, TIME_BYTES);
  randomBytes(NONCE_BYTES).copy(head, TIME_BYTES);
  return Buffer.concat([head, seal(key, head)]).toString('base64url');
}

/** Takes each code once. It remembers used ones in memory, so it takes none that is older than itself. */
export class OneTimeCodes {
  readonly #used = new BoundedMap<string, true>(MAX_USED);
  readonly #since: number;

  /** @param now milliseconds since the Unix epoch */
  constructor(private readonly now: () => number = Date.now) {
    this.#since = now();
  }

  /** Uses up a code. @returns when it was made, in milliseconds since 1970; null when it is not valid, expired or used */
  use(key: string, code: string): number | null {
    const bytes = Buffer.from(code, 'base64url');
    if (bytes.length !== TIME_BYTES + NONCE_BYTES + SEAL_BYTES) return null;
    const head = bytes.subarray(0, TIME_BYTES + NONCE_BYTES);
    if (!timingSafeEqual(bytes.subarray(head.length), seal(key, head))) return null;
    const issued = head.readUIntBE(0, TIME_BYTES);
    const age = this.now() - issued;
    if (issued < this.#since || age > VALID_MS || age < -AHEAD_MS) return null;
    const name = head.toString('base64url');
    if (this.#used.has(name)) return null;
    this.#used.set(name, true);
    return issued;
  }
}

function seal(key: string, head: Buffer): Buffer {
  return createHmac('sha256', key).update('one-time code').update(head).digest().subarray(0, SEAL_BYTES);
}
