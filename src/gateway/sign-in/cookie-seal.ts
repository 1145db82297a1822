import { BoundedMap } from '../../lib/bounded-map.ts';
import { SecretsBox } from '../../lib/secrets-box.ts';
import type { ValueSeal } from '../../traffic-policy/ports.ts';
import { DAY_MS, MAX_SESSION_MS } from '../../traffic-policy/sign-in/session.ts';

/** Milliseconds for which a key seals. It opens for as long as a session can last. */
const PERIOD_MS = 30 * DAY_MS;
const KEPT_PERIODS = Math.ceil(MAX_SESSION_MS / PERIOD_MS);

/** Characters of a value that is kept open. */
const MAX_REMEMBERED = 8_192;

/** Makes the key of a purpose: all gateways of a database make the same one. */
type KeyFor = (purpose: string) => string;

/** Seals values with keys that follow from the gateway's encryption key and the time, so that none of them is stored. */
export class CookieSeal<T> implements ValueSeal<T> {
  readonly #boxes = new Map<number, SecretsBox>();
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

  seal(value: T, owner: string): string {
    const period = this.#current;
    const box = this.#boxOf(period).seal(JSON.stringify(value), owner);
    return `${period.toString(36)}.${box.toString('base64url')}`;
  }

  open(sealed: string, owner: string): T | null {
    const known = this.#opened.get(sealed);
    if (known !== undefined) return known.owner === owner ? known.value : null;
    const dot = sealed.indexOf('.');
    const period = Number.parseInt(sealed.slice(0, dot), 36);
    // A clock that is behind another gateway's may be one period behind.
    if (!(period <= this.#current + 1 && period >= this.#current - KEPT_PERIODS)) return null;
    const value = this.#read(Buffer.from(sealed.slice(dot + 1), 'base64url'), owner, period);
    // A copy, as the text is a part of the request's whole head.
    if (value !== null && sealed.length <= MAX_REMEMBERED)
      this.#opened.set(Buffer.from(sealed).toString(), { owner, value });
    return value;
  }

  #read(box: Buffer, owner: string, period: number): T | null {
    let text: string;
    try {
      text = this.#boxOf(period).open(box, owner);
    } catch {
      // Anyone can send anything: it was not sealed here, or for another owner.
      return null;
    }
    return JSON.parse(text) as T;
  }

  get #current(): number {
    return Math.floor(this.now() / PERIOD_MS);
  }

  #boxOf(period: number): SecretsBox {
    const known = this.#boxes.get(period);
    if (known !== undefined) return known;
    const box = new SecretsBox(Buffer.from(this.keyFor(`${this.purpose} ${period}`), 'base64url'));
    for (const old of this.#boxes.keys()) if (old < this.#current - KEPT_PERIODS) this.#boxes.delete(old);
    this.#boxes.set(period, box);
    return box;
  }
}
