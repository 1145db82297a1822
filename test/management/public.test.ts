import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

/** All direct and transitive imports of a module. */
function imports(file: URL, found = new Set<string>()): Set<string> {
  if (found.has(file.href)) return found;
  found.add(file.href);
  for (const [, from = ''] of readFileSync(file, 'utf8').matchAll(
    /^(?:import|export) (?!type ).*?from '([^']+)';$/gms,
  )) {
    if (from.startsWith('.')) imports(new URL(from, file), found);
    else found.add(from);
  }
  return found;
}

it('device-agent/management depends only on Node, zod and ipaddr.js, not on the gateway or the agent', () => {
  const loaded = [...imports(new URL('../../src/management/public.ts', import.meta.url))];
  expect(loaded.filter((name) => !name.includes(':'))).toEqual(['zod', 'ipaddr.js']);
  const folders = new Set(loaded.flatMap((name) => /\/src\/([a-z-]+)\//.exec(name)?.[1] ?? []));
  expect([...folders].sort()).toEqual(['lib', 'management']);
});
