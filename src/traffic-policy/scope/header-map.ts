import { type CelInput, type CelMap, celList, celMap } from '@bufbuild/cel';
import { headerText } from '../header-text.ts';

/** Headers by name, with case-insensitive lookup. */
class HeaderMap extends Map<string, CelInput> {
  override get(name: unknown): CelInput | undefined {
    return typeof name === 'string' ? super.get(name.toLowerCase()) : undefined;
  }

  override has(name: unknown): boolean {
    return typeof name === 'string' && super.has(name.toLowerCase());
  }
}

/**
 * @param flat alternating names and values
 * @returns a map of lower-case names to all their values
 */
export function headerMap(flat: readonly string[]): CelMap {
  const lists = new Map<string, string[]>();
  for (let at = 0; at < flat.length; at += 2) {
    const name = (flat[at] as string).toLowerCase();
    const known = lists.get(name);
    const value = headerText(flat[at + 1] as string);
    if (known) known.push(value);
    else lists.set(name, [value]);
  }
  const map = new HeaderMap();
  for (const [name, values] of lists) map.set(name, celList(values));
  return celMap(map);
}

export function firstValue(flat: readonly string[], wanted: string): string | undefined {
  for (let at = 0; at < flat.length; at += 2) {
    const name = flat[at] as string;
    if (name.length === wanted.length && name.toLowerCase() === wanted) return headerText(flat[at + 1] as string);
  }
  return undefined;
}

export function allValues(flat: readonly string[], wanted: string): string[] {
  const values = flat.filter((_, at) => at % 2 === 1 && (flat[at - 1] as string).toLowerCase() === wanted);
  return values.map(headerText);
}
