import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { FairQueue } from '../../lib/fair-queue.ts';

const derive = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt);

/** As OWASP recommends for 32 MiB: a fifth of a second of a processor. */
const COST = { log2N: 15, r: 8, p: 3 };
const SALT_BYTES = 16;
const KEY_BYTES = 32;
/** At a time, each with 32 MiB: they take threads that files and DNS need, too. */
const MAX_AT_ONCE = 2;
/** Further ones that wait, some seconds in all: those of clients that are known, which come first, and others. */
const MAX_WAITING = { known: 20, others: 60 };

export const MIN_PASSWORD = 12;
export const MAX_PASSWORD = 256;

/** Too many passwords are being checked. */
export class PasswordsBusy extends Error {}

/** Who wants a password to be checked. */
export interface PasswordClient {
  /** Of its address; places are shared between networks. */
  readonly network: string;
  /** Whether the person has signed in from there, or has a link: comes before others. */
  readonly isKnown: boolean;
}

const ANYONE: PasswordClient = { network: '', isKnown: false };

/** Hashes and checks passwords with scrypt, off the event loop. Both throw {@link PasswordsBusy}. */
export class Passwords {
  readonly #known = new FairQueue<WaitingCheck>(MAX_WAITING.known);
  readonly #others = new FairQueue<WaitingCheck>(MAX_WAITING.others);
  #running = 0;

  /** @param cost of new hashes */
  constructor(private readonly cost = COST) {}

  /** @returns what to store: the cost, a random salt and the key */
  async hash(password: string, client = ANYONE): Promise<Buffer> {
    const { log2N, r, p } = this.cost;
    const salt = randomBytes(SALT_BYTES);
    const head = Buffer.of(log2N, r, p);
    return Buffer.concat([head, salt, await this.#derive(password, head, salt, client)]);
  }

  /** @param stored what {@link hash} returned; empty: no password matches, but the check takes as long */
  async matches(password: string, stored: Buffer, client = ANYONE): Promise<boolean> {
    if (stored.length === 0) {
      await this.hash(password, client);
      return false;
    }
    const salt = stored.subarray(3, 3 + SALT_BYTES);
    const key = await this.#derive(password, stored.subarray(0, 3), salt, client);
    return timingSafeEqual(key, stored.subarray(3 + SALT_BYTES));
  }

  async #derive(password: string, [log2N = 0, r = 0, p = 0]: Buffer, salt: Buffer, client: PasswordClient) {
    await this.#turn(client);
    const N = 2 ** log2N;
    try {
      // The same password may be typed in other Unicode forms on another keyboard.
      return await derive(password.normalize('NFKC'), salt, KEY_BYTES, { N, r, p, maxmem: 256 * N * r });
    } finally {
      // The place goes directly to the next one, so that new ones cannot overtake it.
      const next = this.#known.take() ?? this.#others.take();
      if (next) next.begin();
      else this.#running -= 1;
    }
  }

  #turn({ network, isKnown }: PasswordClient): Promise<void> | undefined {
    if (this.#running >= MAX_AT_ONCE) {
      return new Promise((begin, fail) => {
        (isKnown ? this.#known : this.#others).add(network, { begin, fail })?.fail(new PasswordsBusy());
      });
    }
    this.#running += 1;
    return undefined;
  }
}

interface WaitingCheck {
  readonly begin: () => void;
  readonly fail: (reason: PasswordsBusy) => void;
}
