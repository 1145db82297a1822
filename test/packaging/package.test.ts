import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };

const { dependencies, optionalDependencies } = packageJson;
const DEPENDENCIES = Object.keys({ ...dependencies, ...optionalDependencies }).sort();
/** Optional packages: for coloured debug output, and a native client of PostgreSQL that nobody asks for. */
const OPTIONAL = ['supports-color', 'pg-native'];

/** The packages that files of the build import, found with these expressions; without Node.js's own modules. */
function packagesNamed(files: readonly string[], ...places: RegExp[]): string[] {
  const texts = files.map((name) => readFileSync(name, 'utf8'));
  const names = texts.flatMap((text) =>
    places.flatMap((place) => [...text.matchAll(place)].map(([, name = '']) => name)),
  );
  return [...new Set(names)].filter((name) => !name.startsWith('.') && !isBuiltin(name)).sort();
}

const IMPORTS = [/ from '([^']+)';$/gm, /\bimport\('([^']+)'\)/g];

/** The type files that exported files reach; the compiler also writes others. */
function typesFrom(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  const text = readFileSync(file, 'utf8');
  for (const [, name = ''] of IMPORTS.flatMap((place) => [...text.matchAll(place)])) {
    if (name.startsWith('.')) typesFrom(join(dirname(file), name.replace(/\.ts$/, '.d.ts')), found);
  }
  return found;
}

it('dependencies are exactly the packages that dist/ loads and its types name', () => {
  const programs = readdirSync('dist', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
  const loaded = packagesNamed(
    programs.map((name) => join('dist', name)),
    /^(?:import|export) (?:[^"]*? from )?"([^"]+)";$/gm,
    /\bimport\("([^"]+)"\)/g,
    /\b(?:__)?require\("([^"]+)"\)/g,
  );
  expect(loaded.filter((name) => !OPTIONAL.includes(name))).toEqual(['@ngrok/ngrok', 'libsql']);
  const typed = packagesNamed([...typesFrom(join(packageJson.exports['./management'].types))], ...IMPORTS);
  expect(typed).toEqual([]);
  expect([...loaded, ...typed].filter((name) => !OPTIONAL.includes(name)).sort()).toEqual(DEPENDENCIES);
});

it('the types have a text at each member of a resource', () => {
  const lines = readFileSync('dist/management/resources.d.ts', 'utf8').split('\n');
  const members = lines.flatMap((line, at) =>
    /^ +\w+\??: /.test(line) ? [{ line, before: lines[at - 1] ?? '' }] : [],
  );
  expect(members.length).toBeGreaterThan(500);
  expect(members.filter(({ before }) => !before.trim().startsWith('/** ')).map(({ line }) => line)).toEqual([]);
});

it('npm runs no script of the package when it is installed, and warns of none', () => {
  const { scripts } = JSON.parse(readFileSync('package.json', 'utf8'));
  const atInstall = ['preinstall', 'install', 'postinstall', 'preprepare', 'prepare', 'postprepare'];
  expect(atInstall.filter((name) => name in scripts)).toEqual([]);
});

it('the package holds program, types, licences and documentation, without dead links', async () => {
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts']);
  const [packed] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  const paths = packed.files.map(({ path }) => path);
  const parts = new Set(
    paths
      .map((path) => path.replace(/^dist\/web\/(assets|device|gateway)\/.*/, 'dist/web/$1/'))
      .map((path) => path.replace(/^dist\/.*(\.d\.ts|\.js)$/, 'dist/*$1'))
      .map((path) => path.replace(/^(docs|examples|packaging)\/.*/, '$1/')),
  );
  expect([...parts].sort()).toEqual([
    '.env.example',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'Dockerfile',
    'LICENSE',
    'README.md',
    'SECURITY.md',
    'compose.yaml',
    'defaults/policies.json',
    'dist/*.d.ts',
    'dist/*.js',
    'dist/THIRD-PARTY-LICENSES.txt',
    'dist/sbom.cdx.json',
    'dist/web/THIRD-PARTY-LICENSES.txt',
    'dist/web/assets/',
    'dist/web/device/',
    'dist/web/gateway/',
    'dist/web/sbom.cdx.json',
    'docs/',
    'examples/',
    'package.json',
    'packaging/',
    'test/README.md',
  ]);
  for (const path of [packageJson.bin['device-agent'], ...Object.values(packageJson.exports['./management'])])
    expect(paths).toContain(path.replace('./', ''));
  const dead = paths
    .filter((path) => path.endsWith('.md'))
    .flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)].map(([, link = '']) =>
        join(dirname(page), link),
      ),
    )
    .filter((link) => !paths.some((path) => path === link || path.startsWith(`${link}/`)));
  expect(dead).toEqual([]);
});
