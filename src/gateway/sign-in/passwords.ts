import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { Limiter } from '../../lib/limiter.ts';

const derive = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt);

/** As OWASP recommends for 32 MiB: a fifth of a second of a processor. */
const COST = { log2N: 15, r: 8, p: 3 };
const SALT_BYTES = 16;
const KEY_BYTES = 32;
/** At a time, each with 32 MiB: they take threads that files and DNS need, too. */
const MAX_AT_ONCE = 2;
/** Further ones that wait, some seconds in all. */
const MAX_WAITING = 20;

export const MIN_PASSWORD = 12;
export const MAX_PASSWORD = 256;

/** Too many passwords are being checked. */
export class PasswordsBusy extends Error {}

/** Hashes and checks passwords with scrypt, off the event loop. Both throw {@link PasswordsBusy}. */
export class Passwords {
  readonly #limiter = new Limiter(MAX_AT_ONCE);
  #running = 0;

  /** @param cost of new hashes */
  constructor(private readonly cost = COST) {}

  /** @returns what to store: the cost, a random salt and the key */
  async hash(password: string): Promise<Buffer> {
    const { log2N, r, p } = this.cost;
    const salt = randomBytes(SALT_BYTES);
    const head = Buffer.of(log2N, r, p);
    return Buffer.concat([head, salt, await this.#derive(password, head, salt)]);
  }

  /** @param stored what {@link hash} returned; empty: no password matches, but the check takes as long */
  async matches(password: string, stored: Buffer): Promise<boolean> {
    if (stored.length === 0) {
      await this.hash(password);
      return false;
    }
    const salt = stored.subarray(3, 3 + SALT_BYTES);
    return timingSafeEqual(await this.#derive(password, stored.subarray(0, 3), salt), stored.subarray(3 + SALT_BYTES));
  }

  async #derive(password: string, [log2N = 0, r = 0, p = 0]: Buffer, salt: Buffer): Promise<Buffer> {
    if (this.#running >= MAX_AT_ONCE + MAX_WAITING) throw new PasswordsBusy();
    this.#running += 1;
    const N = 2 ** log2N;
    try {
      // The same password may be typed in other Unicode forms on another keyboard.
      const text = password.normalize('NFKC');
      return await this.#limiter.run(() => derive(text, salt, KEY_BYTES, { N, r, p, maxmem: 256 * N * r }));
    } finally {
      this.#running -= 1;
    }
  }
}
