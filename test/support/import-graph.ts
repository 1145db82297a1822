import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { parseAst } from 'rolldown/parseAst';

/** One import of a file in this repository, including type-only imports. */
export interface Import {
  from: string;
  to: string;
  dynamic: boolean;
  /** Whether it is gone when the program runs. */
  type: boolean;
}

/** Every import between the TypeScript files below a folder. Rolldown's parser reads them. */
export function importsBelow(folder: string): Import[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name))
    .flatMap((name) => importsOf(join(folder, name)));
}

function importsOf(file: string): Import[] {
  const found: Import[] = [];
  const lang = file.endsWith('.tsx') ? 'tsx' : 'ts';
  visit(parseAst(readFileSync(file, 'utf8'), { lang }), ({ type, source, importKind, exportKind }) => {
    const target = (source as { value?: unknown } | null | undefined)?.value;
    if (typeof target !== 'string' || !target.startsWith('.')) return;
    found.push({
      from: file,
      to: normalize(join(dirname(file), target)),
      dynamic: type === 'ImportExpression',
      type: importKind === 'type' || exportKind === 'type',
    });
  });
  return found;
}

/** Calls `see` for every node of a syntax tree. */
function visit(node: unknown, see: (node: Record<string, unknown>) => void): void {
  if (typeof node !== 'object' || node === null) return;
  if (!Array.isArray(node)) see(node as Record<string, unknown>);
  for (const child of Object.values(node)) visit(child, see);
}

/** The files that are loaded with a file. */
export function loadedWith(file: string, imports: readonly Import[]): Set<string> {
  const loaded = new Set([file]);
  // A set goes on with what is added meanwhile.
  for (const each of loaded) {
    for (const { from, to, dynamic, type } of imports) if (from === each && !dynamic && !type) loaded.add(to);
  }
  return loaded;
}

/** Every import that closes a cycle, with the files of the cycle. */
export function cyclesOf(imports: readonly Pick<Import, 'from' | 'to'>[]): string[] {
  const targets = new Map<string, string[]>();
  for (const { from, to } of imports) targets.set(from, [...(targets.get(from) ?? []), to]);
  const cycles: string[] = [];
  const done = new Set<string>();
  const walk = (file: string, path: readonly string[]) => {
    const at = path.indexOf(file);
    if (at >= 0) cycles.push([...path.slice(at), file].join(' → '));
    if (at >= 0 || done.has(file)) return;
    for (const target of targets.get(file) ?? []) walk(target, [...path, file]);
    done.add(file);
  };
  for (const file of targets.keys()) walk(file, []);
  return cycles;
}
