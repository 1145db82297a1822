import { type CelInput, type CelValue, celList, celMap, isCelList, isCelMap, isCelUint } from '@bufbuild/cel';
import { toJson } from '@bufbuild/protobuf';
import { isReflectMessage } from '@bufbuild/protobuf/reflect';
import { type Duration, DurationSchema, type Timestamp, TimestampSchema } from '@bufbuild/protobuf/wkt';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const MAX_DEPTH = 20;

/** A value can contain another one many times, so that its JSON is larger than the memory it takes. */
const MAX_NODES = 10_000;
const MAX_CHARACTERS = 256 * 1024;

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Converts a value for `${…}`: scalars as CEL's string() does, lists and maps to JSON.
 *
 * @throws Error for null, types, and bytes that are not UTF-8
 */
export function textOf(value: CelValue): string {
  if (typeof value === 'string') return value;
  if (value instanceof Uint8Array) return utf8.decode(value);
  const json = jsonOf(value);
  if (json === null) throw new Error('null cannot be converted to a string');
  return typeof json === 'object' ? JSON.stringify(json) : String(json);
}

/**
 * Integers become numbers while they are exact, bytes base64.
 *
 * @throws Error for types, and for values that are too large or nested too deeply
 */
export function jsonOf(value: CelValue): Json {
  return converted(value, 0, { nodes: MAX_NODES, characters: MAX_CHARACTERS });
}

function converted(value: CelValue, depth: number, left: { nodes: number; characters: number }): Json {
  if (depth > MAX_DEPTH || --left.nodes < 0 || left.characters < 0) throw new Error('the value is too large');
  if (typeof value === 'string' || value instanceof Uint8Array) left.characters -= value.length;
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'bigint') return wholeNumber(value);
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (isCelUint(value)) return wholeNumber(value.value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  if (isCelList(value)) return Array.from(value, (element) => converted(element, depth + 1, left));
  if (isCelMap(value)) {
    const members = Array.from(value, ([key, member]) => {
      const name = textOf(key);
      left.characters -= name.length;
      return [name, converted(member, depth + 1, left)] as const;
    });
    return Object.fromEntries(members);
  }
  if (isReflectMessage(value, TimestampSchema)) return toJson(TimestampSchema, value.message as Timestamp);
  if (isReflectMessage(value, DurationSchema)) return toJson(DurationSchema, value.message as Duration);
  throw new Error('the value cannot be converted to a string');
}

function wholeNumber(value: bigint): number | string {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
}

/** Converts JSON to CEL: whole numbers become ints. */
export function celOf(json: unknown): CelInput {
  if (typeof json === 'number') return Number.isSafeInteger(json) ? BigInt(json) : json;
  if (typeof json === 'string' || typeof json === 'boolean') return json;
  if (Array.isArray(json)) return celList(json.map(celOf));
  if (typeof json === 'object' && json !== null) {
    return celMap(new Map(Object.entries(json).map(([key, member]) => [key, celOf(member)])));
  }
  return null;
}
