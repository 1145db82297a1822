import { type CelInput, type CelMap, celList, celMap, isCelList, isCelMap } from '@bufbuild/cel';
import { valueAt } from '../lib/http/header-fields.ts';
import { HeaderMap, ignoresCase } from './scope/header-map.ts';

type Key = Exclude<Parameters<CelMap['get']>[0], number>;

/** Bytes of memory. Measured with Node.js 20; those of maps and lists include what the library wraps them in. */
const TEXT_BYTES = 24;
const LIST_BYTES = 128;
const MAP_BYTES = 200;
const ELEMENT_BYTES = 8;
const MEMBER_BYTES = 60;
const BYTES_BYTES = 184;
/** Times and durations, which are messages. */
const OTHER_BYTES = 400;

/** V8 copies shorter texts when it joins them or cuts them out of others. */
const SHORT = 13;

/**
 * Named values, which share no memory with what they were made of. V8 joins texts lazily, with 32 bytes for each piece, and
 * cuts them out of others, which a short one then keeps alive.
 */
export class KeptValues {
  readonly #values: Map<string, CelInput>;
  readonly #sizes = new Map<string, number>();
  #bytes = 0;

  /** @param known values that take no memory of their own */
  constructor(known: ReadonlyMap<string, CelInput> | null = null) {
    this.#values = new Map(known);
  }

  get values(): Map<string, CelInput> {
    return this.#values;
  }

  /**
   * Keeps a copy of a value.
   *
   * @param limit bytes of memory that all values may take
   * @returns the bytes that they take more than before; null when it is not kept, because that would be too many
   */
  set(name: string, value: CelInput, limit: number): number | null {
    const before = this.#sizes.get(name) ?? 0;
    const copy = new Copy(limit - this.#bytes + before);
    const room = copy.left;
    const kept = copy.of(value);
    if (copy.left < 0) return null;
    const more = room - copy.left - before;
    this.#bytes += more;
    this.#sizes.set(name, before + more);
    this.#values.set(name, kept);
    return more;
  }
}

/** A copy of a text with memory of its own, see {@link KeptValues}. */
export function keptText(text: string): string {
  if (text.length < SHORT) return text;
  const encoding = isAscii(text) ? 'latin1' : 'utf16le';
  return Buffer.from(text, encoding).toString(encoding);
}

/** Bytes of memory that a text takes. */
export function bytesOfText(text: string): number {
  return TEXT_BYTES + (isAscii(text) ? text.length : 2 * text.length);
}

/** Bytes of memory that names and values of headers take. */
export function bytesOfHeaders(flat: readonly string[]): number {
  let bytes = 0;
  for (let at = 1; at < flat.length; at += 2) bytes += bytesOfText(valueAt(flat, at - 1)) + ELEMENT_BYTES * 2;
  return bytes;
}

function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length;
}

class Copy {
  constructor(public left: number) {}

  /** The copy; anything once nothing is left. */
  of(value: CelInput): CelInput {
    if (this.left < 0) return null;
    if (typeof value === 'string') {
      this.left -= bytesOfText(value);
      return this.left < 0 ? null : keptText(value);
    }
    if (value instanceof Uint8Array) {
      this.left -= BYTES_BYTES + value.length;
      return this.left < 0 ? null : value.slice();
    }
    if (isCelList(value)) return this.#list(value);
    if (isCelMap(value)) return this.#map(value);
    this.left -= typeof value === 'object' && value !== null ? OTHER_BYTES : TEXT_BYTES;
    return value;
  }

  #list(elements: Iterable<CelInput>): CelInput {
    this.left -= LIST_BYTES;
    const list: CelInput[] = [];
    for (const element of elements) {
      this.left -= ELEMENT_BYTES;
      if (this.left < 0) break;
      list.push(this.of(element));
    }
    return celList(list);
  }

  #map(members: CelMap): CelInput {
    this.left -= MAP_BYTES;
    const kept: [Key, CelInput][] = [];
    for (const [key, member] of members) {
      this.left -= MEMBER_BYTES;
      if (this.left < 0) break;
      kept.push([typeof key === 'string' ? (this.of(key) as string) : key, this.of(member)]);
    }
    return celMap(ignoresCase(members) ? new HeaderMap(kept) : new Map(kept));
  }
}
