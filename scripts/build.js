// JavaScript, because npm start runs it on Node.js 20, which does not run TypeScript.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PROGRAM = join(ROOT, 'dist/cli.js');
/** Written last: a build that was interrupted lacks it. */
const TYPES = join(ROOT, 'dist/management/public.d.ts');
/** Packages that a checkout from before the pages lacks. */
const TOOLS = ['rolldown', 'preact'];
const SOURCES = [
  'src',
  'packaging/bill-of-materials.ts',
  'packaging/bundled-packages.ts',
  'packaging/commit.ts',
  'packaging/compressed-copies.ts',
  'packaging/gateway-chunks.ts',
  'packaging/management-types.ts',
  'packaging/publication.json',
  'packaging/schema-types.ts',
  'packaging/smaller-modules.ts',
  'packaging/third-party-licenses.ts',
  'test/faults/fleet-agents.ts',
  'test/faults/gateway-writer.ts',
  'test/gateway/cluster/histories/gateway-node.ts',
  'test/gateway/history/year/year-node.ts',
  'rolldown.config.ts',
  'vite.config.ts',
  'package-lock.json',
];

/**
 * Why `dist` has to be built again; null when it is newer than everything it is built from.
 *
 * @returns {string | null}
 */
export function staleBecause() {
  if (!existsSync(PROGRAM) || !existsSync(TYPES)) return 'dist is missing or incomplete';
  const built = statSync(PROGRAM).mtimeMs;
  const newer = SOURCES.flatMap(pathsBelow).find((path) => statSync(join(ROOT, path)).mtimeMs > built);
  return newer === undefined ? null : `dist is older than ${newer}`;
}

/**
 * The path itself, and with a folder everything in it. Folders count: removing a file changes nothing else.
 *
 * @param {string} path
 * @returns {string[]}
 */
function pathsBelow(path) {
  if (!statSync(join(ROOT, path)).isDirectory()) return [path];
  return [path, ...readdirSync(join(ROOT, path), { recursive: true }).map((name) => join(path, String(name)))];
}

/**
 * Builds `dist` and, in a checkout, the benchmarks and the fault report.
 *
 * @throws Error when a step fails, or when the build tools are not installed
 */
export function build() {
  const reason = staleBecause();
  if (!TOOLS.every((name) => existsSync(join(ROOT, 'node_modules', name))))
    throw new Error(
      `cannot build: ${reason ?? 'dist is up to date'}, but the build tools are not installed; run npm ci --include=dev (NODE_ENV=production leaves them out)`,
    );
  const began = new Date();
  run('rolldown', ['-c']);
  // After rolldown, which empties dist.
  run('vite', ['build']);
  run('tsc', ['-p', 'tsconfig.types.json']);
  // Reads what the compiler has emitted.
  runProgram('management-types', process.execPath, ['build/types/management-types.js']);
  // npx device-agent runs it in a checkout; npm makes it executable only when it links it, not after the next build.
  chmodSync(PROGRAM, 0o755);
  // A source file that was saved during the build is newer than this.
  utimesSync(PROGRAM, began, began);
}

/** Builds only when `dist` is out of date. */
export function buildIfStale() {
  if (staleBecause() !== null) build();
}

/**
 * Runs a build tool in the checkout.
 *
 * @param {string} tool of node_modules/.bin
 * @param {string[]} args
 * @throws Error when it fails
 */
export function run(tool, args) {
  runProgram(tool, join(ROOT, 'node_modules/.bin', tool), args);
}

/**
 * @param {string} name
 * @param {string} path
 * @param {string[]} args
 */
function runProgram(name, path, args) {
  const { status, error, stdout } = spawnSync(path, args, {
    cwd: ROOT,
    // With another one, as in tests, vite builds pages for development, which name the folders of this machine.
    env: { ...process.env, NODE_ENV: 'production' },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) throw new Error(`${name} failed: ${error?.message ?? `exit code ${status}`}\n${stdout ?? ''}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    if (process.argv.includes('--if-stale')) buildIfStale();
    else build();
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  }
}
