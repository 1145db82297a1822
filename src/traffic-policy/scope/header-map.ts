import { type CelMap, celMap } from '@bufbuild/cel';
import { nameAt, trimSpace, valueAt } from '../../lib/http/header-fields.ts';
import { headerText } from '../header-text.ts';

/** Headers by lower-case name. The library makes a list of its own of an array that is read. */
export class HeaderMap<Name, Value> extends Map<Name, Value> {
  override get(name: unknown): Value | undefined {
    return typeof name === 'string' ? super.get(name.toLowerCase() as Name) : undefined;
  }

  override has(name: unknown): boolean {
    return typeof name === 'string' && super.has(name.toLowerCase() as Name);
  }
}

export function headerMap(flat: readonly string[]): CelMap {
  const map = new HeaderMap<string, string[]>();
  for (let at = 0; at < flat.length; at += 2) {
    const name = nameAt(flat, at).toLowerCase();
    const known = map.get(name);
    const value = headerText(valueAt(flat, at));
    if (known) known.push(value);
    else map.set(name, [value]);
  }
  return celMap(map);
}

/** Whether a map finds names in any case, as that of headers does. */
export function ignoresCase(map: CelMap): boolean {
  for (const name of map.keys()) {
    const upper = String(name).toUpperCase();
    if (upper !== name) return map.has(upper) && ![...map.keys()].includes(upper);
  }
  return false;
}

export function firstValue(flat: readonly string[], wanted: string): string | undefined {
  for (let at = 0; at < flat.length; at += 2) {
    const name = nameAt(flat, at);
    if (name.length === wanted.length && name.toLowerCase() === wanted) return headerText(valueAt(flat, at));
  }
  return undefined;
}

export function allValues(flat: readonly string[], wanted: string): string[] {
  const values = flat.filter((_, at) => at % 2 === 1 && nameAt(flat, at - 1).toLowerCase() === wanted);
  return values.map(headerText);
}

interface MediaType {
  /** For example `text/html`; empty without the header. */
  type: string;
  parameters: Map<string, string>;
}

/** RFC 9110, section 8.3.1. */
export function parseMediaType(header: string): MediaType {
  const [type = '', ...rest] = header.split(';');
  const parameters = new Map<string, string>();
  for (const part of rest) {
    const equals = part.indexOf('=');
    if (equals === -1) continue;
    const value = trimSpace(part, equals + 1);
    parameters.set(trimSpace(part, 0, equals).toLowerCase(), value.replace(/^"(.*)"$/, '$1'));
  }
  return { type: trimSpace(type).toLowerCase(), parameters };
}
