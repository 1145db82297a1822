import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { transformSync } from 'rolldown/utils';
import type { Plugin } from 'vitest/config';

const ROOT = join(import.meta.dirname, '../..');
/** Where the compiled modules are; the same path below it as below the checkout. */
const COMPILED = join(ROOT, 'build/modules');
const FOLDERS = ['src', 'test', 'scripts', 'packaging', 'bench'];
/** What changes how everything is compiled. */
const COMPILER = ['test/support/native-modules.ts', 'package-lock.json'];

/**
 * Lets Node load all modules that test files import, compiled once, instead of Vite in every process: that halves the time to
 * load them. Test files and setup files stay with Vite. So does everything in watch mode, which has to know who imports a
 * changed file, and for coverage.
 */
export function nativeModules(): Plugin {
  let active: boolean | undefined;
  // Vitest runs them again for each file, which Node would not.
  const setupFiles = new Set<string>();
  return {
    name: 'native-modules',
    enforce: 'pre',
    config: () => ({ test: { server: { deps: { external: [/\/build\/modules\//] } } } }),
    configureVitest({ vitest, project }) {
      for (const path of project.config.setupFiles) setupFiles.add(path);
      // Vitest calls this for each project.
      if (active !== undefined) return;
      active = !vitest.config.watch && !vitest.config.coverage.enabled;
      if (active) compileModules();
    },
    resolveId(id, importer) {
      // A query asks Vite for another instance.
      if (active !== true || importer === undefined || id.includes('?')) return null;
      const path = id.startsWith('file:') ? fileURLToPath(id) : resolve(dirname(importer), id);
      const isPath = id.startsWith('.') || id.startsWith('file:') || isAbsolute(id);
      const name = relative(ROOT, path);
      return isPath && isCompiled(name) && !setupFiles.has(path) && existsSync(path) ? compiledPath(name) : null;
    },
  };
}

function isCompiled(name: string): boolean {
  const [folder = ''] = name.split('/');
  return FOLDERS.includes(folder) && name.endsWith('.ts') && !name.endsWith('.test.ts') && !name.startsWith('src/web/');
}

function compiledPath(name: string): string {
  return join(COMPILED, name.replace(/\.ts$/, '.js'));
}

/** Compiles what has changed, and removes what has no source any more. */
function compileModules(): void {
  const sources = FOLDERS.filter((folder) => existsSync(join(ROOT, folder))).flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .map((name) => join(folder, name))
      .filter(isCompiled),
  );
  const compilerChanged = Math.max(...COMPILER.map((name) => statSync(join(ROOT, name)).mtimeMs));
  for (const name of sources) {
    const written = statSync(compiledPath(name), { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (written < Math.max(compilerChanged, statSync(join(ROOT, name)).mtimeMs)) compile(name);
  }
  const wanted = new Set(sources.flatMap((name) => [compiledPath(name), `${compiledPath(name)}.map`]));
  for (const name of readdirSync(COMPILED, { recursive: true, encoding: 'utf8' })) {
    if (/\.js(?:\.map)?$/.test(name) && !wanted.has(join(COMPILED, name)))
      rmSync(join(COMPILED, name), { force: true });
  }
}

function compile(name: string): void {
  const began = new Date();
  const source = join(ROOT, name);
  const url = pathToFileURL(source);
  // What is not compiled stays where it is.
  const text = readFileSync(source, 'utf8').replaceAll(
    /(?<=(?:from|import\()\s*')\.[^']+\.js(?:on)?(?=')/g,
    (target) => new URL(target, url).href,
  );
  const { code, map, errors } = transformSync(source, text, {
    tsconfig: false,
    target: 'node20',
    sourcemap: true,
    typescript: { onlyRemoveTypeImports: true, rewriteImportExtensions: true },
    // Files beside the source are found by its place.
    define: {
      'import.meta.url': JSON.stringify(url.href),
      'import.meta.dirname': JSON.stringify(dirname(source)),
      'import.meta.filename': JSON.stringify(source),
    },
  });
  if (errors.length > 0) throw new Error(`cannot compile ${name}: ${errors.map(String).join('; ')}`);
  const target = compiledPath(name);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(
    `${target}.map`,
    JSON.stringify({ ...JSON.parse(JSON.stringify(map)), sources: [source], sourcesContent: undefined }),
  );
  // Whole at once, for a run beside this one; a source file that was saved meanwhile is newer than this.
  writeFileSync(`${target}.${process.pid}`, `${code}//# sourceMappingURL=${target.split('/').at(-1)}.map\n`);
  utimesSync(`${target}.${process.pid}`, began, began);
  renameSync(`${target}.${process.pid}`, target);
}
