import { CompactEncrypt, compactDecrypt, errors } from 'jose';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { ValueSeal } from '../../traffic-policy/ports.ts';
import { DAY_MS, MAX_SESSION_MS } from '../../traffic-policy/sign-in/session.ts';

/** Milliseconds for which a key seals. It opens for as long as a session can last. */
const PERIOD_MS = 30 * DAY_MS;
const KEPT_PERIODS = Math.ceil(MAX_SESSION_MS / PERIOD_MS);

const ALGORITHMS = { keyManagementAlgorithms: ['dir'], contentEncryptionAlgorithms: ['A256GCM'] };

/** Characters of a value that is kept open. */
const MAX_REMEMBERED = 8_192;

/** Makes the key of a purpose, 256 bits in base64url: all gateways of a database make the same one. */
type KeyFor = (purpose: string) => string;

/**
 * Seals values as JSON Web Encryption (RFC 7516) with keys that follow from the gateway's encryption key, the time and the
 * owner, so that none of them is stored.
 */
export class CookieSeal<T> implements ValueSeal<T> {
  readonly #opened: BoundedMap<string, { owner: string; value: T }>;

  /**
   * @param purpose tells the seals of a gateway apart: none opens what another has sealed
   * @param remembered values that are kept open: opening one takes more time than all else of a request's policy
   */
  constructor(
    private readonly purpose: string,
    private readonly keyFor: KeyFor,
    remembered: number,
    private readonly now: () => number,
  ) {
    this.#opened = new BoundedMap(remembered);
  }

  seal(value: T, owner: string): Promise<string> {
    const period = this.#current;
    return new CompactEncrypt(Buffer.from(JSON.stringify(value)))
      .setProtectedHeader({ alg: 'dir', enc: 'A256GCM', kid: String(period) })
      .encrypt(this.#keyOf(period, owner));
  }

  async open(sealed: string, owner: string, onDecrypt = () => {}): Promise<T | null> {
    const known = this.#opened.get(sealed);
    if (known !== undefined) return known.owner === owner ? known.value : null;
    onDecrypt();
    const value = await this.#read(sealed, owner);
    // A copy, as the text is a part of the request's whole head.
    if (value !== null && sealed.length <= MAX_REMEMBERED)
      this.#opened.set(Buffer.from(sealed).toString(), { owner, value });
    return value;
  }

  async #read(sealed: string, owner: string): Promise<T | null> {
    try {
      const keyOf = ({ kid }: { kid?: string }) => this.#keyOf(Number(kid), owner);
      const { plaintext } = await compactDecrypt(sealed, keyOf, ALGORITHMS);
      return JSON.parse(Buffer.from(plaintext).toString()) as T;
    } catch (error) {
      // Anyone can send anything: it was not sealed here, or for another owner.
      if (error instanceof errors.JOSEError) return null;
      throw error;
    }
  }

  get #current(): number {
    return Math.floor(this.now() / PERIOD_MS);
  }

  /** @throws {errors.JWEInvalid} when the period is none whose key still opens */
  #keyOf(period: number, owner: string): Uint8Array<ArrayBuffer> {
    // A clock that is behind another gateway's may be one period behind.
    if (!(period <= this.#current + 1 && period >= this.#current - KEPT_PERIODS)) throw new errors.JWEInvalid();
    return Buffer.from(this.keyFor(`${this.purpose} ${period} ${owner}`), 'base64url');
  }
}
