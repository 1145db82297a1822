import { createCipheriv, createDecipheriv, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { ValueSeal } from '../../traffic-policy/ports.ts';
import { DAY_MS, MAX_SESSION_MS } from '../../traffic-policy/sign-in/sign-in-session.ts';

/** Milliseconds for which a key seals. It opens for as long as a session can last. */
const PERIOD_MS = 30 * DAY_MS;
const KEPT_PERIODS = Math.ceil(MAX_SESSION_MS / PERIOD_MS);

/** A header, no encrypted key, an initialization vector, the ciphertext and a tag (RFC 7516, section 7.1; RFC 7518, section 5.3). */
const SEALED = /^([\w-]+)\.\.([\w-]{16})\.([\w-]+)\.([\w-]{22})$/;
const CIPHER = 'aes-256-gcm';
const VECTOR_BYTES = 12;

/** Keys that are kept, of owners and periods. */
const MAX_KEYS = 256;

/** Milliseconds after which another encryption key holds here, too. */
const KEY_CHECK_MS = 1_000;

/** Characters of a value that is kept open. */
const MAX_REMEMBERED = 8_192;

/** Makes the key of a purpose, 256 bits in base64url: all gateways of a database make the same one. */
type KeyFor = (purpose: string) => string;

/**
 * Seals values as JSON Web Encryption (RFC 7516) with keys that follow from the gateway's encryption key, the time and the
 * owner, so that none of them is stored. Not by a library for these: anyone can send made-up ones, and their cipher runs in
 * the thread pool, where passing a few bytes on takes more processor time than to open them.
 */
export class CookieSeal<T> implements ValueSeal<T> {
  readonly #opened: BoundedMap<string, { owner: string; value: T }>;
  readonly #keys = new BoundedMap<string, KeyObject>(MAX_KEYS);
  #known = { current: Number.NaN, periods: new Map<string, number>() };
  #root = { key: '', checkedAt: Number.NEGATIVE_INFINITY };

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

  seal(value: T, owner: string): string {
    this.#followKey();
    const period = this.#current;
    const header = encodedHeader(period);
    const vector = randomBytes(VECTOR_BYTES);
    const cipher = createCipheriv(CIPHER, this.#keyOf(period, owner), vector).setAAD(Buffer.from(header));
    const content = Buffer.concat([cipher.update(JSON.stringify(value)), cipher.final()]);
    const [initial, sealed, tag] = [vector, content, cipher.getAuthTag()].map((part) => part.toString('base64url'));
    return `${header}..${initial}.${sealed}.${tag}`;
  }

  open(sealed: string, owner: string, onDecrypt = () => {}): T | null {
    this.#followKey();
    const known = this.#opened.get(sealed);
    if (known !== undefined) return known.owner === owner ? known.value : null;
    const [, header = '', ...parts] = SEALED.exec(sealed) ?? [];
    const period = this.#periodOf(header);
    if (period === undefined) return null;
    onDecrypt();
    const [vector, content, tag] = parts.map((part) => Buffer.from(part, 'base64url')) as [Buffer, Buffer, Buffer];
    const decipher = createDecipheriv(CIPHER, this.#keyOf(period, owner), vector).setAAD(Buffer.from(header));
    const text = decipher.setAuthTag(tag).update(content, undefined, 'utf8');
    try {
      decipher.final();
    } catch {
      // Anyone can send anything: it was not sealed here, or for another owner.
      return null;
    }
    const value = JSON.parse(text) as T;
    // A copy, as the text is a part of the request's whole head.
    if (sealed.length <= MAX_REMEMBERED) this.#opened.set(Buffer.from(sealed).toString(), { owner, value });
    return value;
  }

  /** When it was sealed, by its header: undefined for what was not sealed here, and when the key is too old. */
  #periodOf(header: string): number | undefined {
    const current = this.#current;
    if (this.#known.current !== current) {
      // A clock that is behind another gateway's may be one period behind.
      const periods = Array.from({ length: KEPT_PERIODS + 2 }, (_, at) => current + 1 - at);
      this.#known = { current, periods: new Map(periods.map((period) => [encodedHeader(period), period])) };
    }
    return this.#known.periods.get(header);
  }

  get #current(): number {
    return Math.floor(this.now() / PERIOD_MS);
  }

  /** What was sealed under another encryption key is not opened any more. */
  #followKey(): void {
    const now = performance.now();
    if (now - this.#root.checkedAt < KEY_CHECK_MS) return;
    const key = this.keyFor(this.purpose);
    if (key !== this.#root.key) {
      this.#keys.clear();
      this.#opened.clear();
    }
    this.#root = { key, checkedAt: now };
  }

  #keyOf(period: number, owner: string): KeyObject {
    const purpose = `${this.purpose} ${period} ${owner}`;
    const key = this.#keys.get(purpose) ?? createSecretKey(this.keyFor(purpose), 'base64url');
    this.#keys.set(purpose, key);
    return key;
  }
}

function encodedHeader(period: number): string {
  return Buffer.from(JSON.stringify({ alg: 'dir', enc: 'A256GCM', kid: String(period) })).toString('base64url');
}
