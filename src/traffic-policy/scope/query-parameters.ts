import { type CelMap, celMap } from '@bufbuild/cel';

export function queryParameters(query: string): CelMap {
  const values = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(query)) {
    const known = values.get(name);
    if (known) known.push(value);
    else values.set(name, [value]);
  }
  return celMap(values);
}
