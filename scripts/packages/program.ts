import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import packageJson from '../../package.json' with { type: 'json' };
import node from '../../packaging/node.json' with { type: 'json' };
import { GATEWAY_SERVICE, type Service } from '../../src/service/service.ts';
import { ARCHITECTURES, type Architecture } from './debian-files.ts';
import { execute } from './execute.ts';

const CACHE = 'node_modules/.cache/debian';
/** Of the pages, what only the gateway serves. */
const GATEWAY_PAGES = /^dist\/web\/(gateway\/|assets\/(gateway-|sign-in\.))/;
/** Of the packages from npm, what nothing reads. */
const UNREAD = /(\.md|\.d\.ts|\.map)$|\/types\//;

/**
 * Copies a part of the program: what an agent needs, or the rest that makes a gateway of it.
 *
 * @param program its folder
 * @param modules folder with `node_modules`, as {@link fetchModules} makes it
 */
export function stageProgram(service: Service, program: string, modules: string): void {
  const gatewayChunks: string[] = JSON.parse(readFileSync('build/gateway-chunks.json', 'utf8'));
  const ofGateway = (path: string) =>
    GATEWAY_PAGES.test(path) ||
    gatewayChunks.includes(path.replace(/^dist\//, '')) ||
    /libsql|neon-rs|detect-libc/.test(path);
  const isLeftOut = (path: string) =>
    /\.map$|\.d\.ts$|\/(THIRD-PARTY-LICENSES\.txt|sbom\.cdx\.json)$|^dist\/management\//.test(path);
  const own = [...filesBelow('.', 'dist'), 'defaults/policies.json'].filter((path) => !isLeftOut(path));
  const packages = productionPackages(modules)
    .flatMap((path) => filesBelow(modules, path))
    .filter((path) => !UNREAD.test(path));
  for (const [from, paths] of [['.', own] as const, [modules, packages] as const]) {
    for (const path of paths.filter((each) => ofGateway(each) === (service === GATEWAY_SERVICE))) {
      const target = join(program, path);
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(join(from, path), target);
    }
  }
}

/** Folders of the packages that are not bundled, with native code for the C library of Debian. */
function productionPackages(modules: string): string[] {
  const lock: { packages: Record<string, { dev?: boolean }> } = JSON.parse(readFileSync('package-lock.json', 'utf8'));
  return Object.entries(lock.packages)
    .filter(([path, { dev }]) => path !== '' && !dev && !path.includes('musl') && existsSync(join(modules, path)))
    .map(([path]) => path);
}

/** Removes the debug symbols of native modules. */
export function stripModules(folder: string, architecture: Architecture): void {
  for (const path of filesBelow(folder, '').filter((each) => each.endsWith('.node')))
    strip(join(folder, path), architecture);
}

/**
 * Writes what makes the program run without npm: the version, and which Node.js runs it.
 *
 * @param interpreter path of Node.js on the device
 */
export function stageStart(program: string, interpreter: string, version: string): void {
  const cli = join(program, 'dist/cli.js');
  writeFileSync(cli, readFileSync(cli, 'utf8').replace(/^#!.*/, `#!${interpreter}`));
  const { name, license, type } = packageJson;
  write(program, 'package.json', `${JSON.stringify({ name, version, license, type, private: true })}\n`);
}

/** Gives all files of a tree their modes and the date of the commit. @param executables ends of paths */
export function setModes(root: string, executables: readonly string[]): void {
  const paths = ['', ...readdirSync(root, { recursive: true, encoding: 'utf8' })];
  // Changes in a folder change its time: children come first.
  for (const path of paths.reverse().filter((each) => !lstatSync(join(root, each)).isSymbolicLink())) {
    const full = join(root, path);
    const isExecutable = statSync(full).isDirectory() || executables.some((name) => path.endsWith(`/${name}`));
    chmodSync(full, isExecutable ? 0o755 : 0o644);
    utimesSync(full, sourceDate(), sourceDate());
  }
}

let commitDate: number | null = null;

/** Seconds since 1970: of SOURCE_DATE_EPOCH, or of the commit. */
export function sourceDate(): number {
  const { SOURCE_DATE_EPOCH } = process.env;
  if (SOURCE_DATE_EPOCH) return Number(SOURCE_DATE_EPOCH);
  commitDate ??= Number(execute('git', ['log', '-1', '--format=%ct']));
  return commitDate;
}

/** The packages from npm with native code for an architecture, as package-lock.json has them. */
export function fetchModules(architecture: Architecture): string {
  const lock = createHash('sha256').update(readFileSync('package-lock.json')).digest('hex').slice(0, 16);
  const folder = join(CACHE, `${architecture}-${lock}`);
  if (existsSync(folder)) return folder;
  const work = `${folder}.${process.pid}`;
  mkdirSync(work, { recursive: true });
  for (const file of ['package.json', 'package-lock.json', '.npmrc']) copyFileSync(file, join(work, file));
  const target = ['--os=linux', '--libc=glibc', `--cpu=${ARCHITECTURES[architecture]}`];
  execute('npm', ['ci', '--prefix', work, '--omit=dev', '--ignore-scripts', '--engine-strict=false', ...target]);
  renameSync(work, folder);
  return folder;
}

/** Node.js without debug symbols. It comes from the npm registry, which has the official binaries. */
export function fetchNode(architecture: Architecture): { binary: string; license: string } {
  const sha256 = architecture === 'armhf' ? null : node.sha256[architecture];
  const packageName = `node-linux-${ARCHITECTURES[architecture]}`;
  const folder = join(CACHE, `${packageName}-${node.version}`);
  const found = { binary: join(folder, 'node'), license: join(folder, 'LICENSE') };
  if (existsSync(folder)) return found;
  const work = `${folder}.${process.pid}`;
  mkdirSync(work, { recursive: true });
  execute('npm', ['pack', `${packageName}@${node.version}`, '--pack-destination', work]);
  const tarball = join(work, `${packageName}-${node.version}.tgz`);
  const sum = createHash('sha256').update(readFileSync(tarball)).digest('hex');
  if (sum !== sha256) throw new Error(`${basename(tarball)} has the SHA-256 ${sum}, not that of packaging/node.json`);
  execute('tar', ['-xzf', tarball, '-C', work, '--strip-components=1', 'package/bin/node', 'package/LICENSE']);
  renameSync(join(work, 'bin/node'), join(work, 'node'));
  rmSync(join(work, 'bin'), { recursive: true });
  rmSync(tarball);
  strip(join(work, 'node'), architecture);
  renameSync(work, folder);
  return found;
}

/** The tool of each architecture is in the package binutils-<triplet>. */
const TRIPLETS: Record<Architecture, string> = {
  amd64: 'x86_64-linux-gnu',
  arm64: 'aarch64-linux-gnu',
  armhf: 'arm-linux-gnueabihf',
};

function strip(file: string, architecture: Architecture): void {
  execute(`${TRIPLETS[architecture]}-strip`, ['--strip-unneeded', file]);
}

/** Writes a file of a tree, and its folders. */
export function write(root: string, path: string, content: string | Buffer): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

/** Files of a folder of a tree, sorted, by their paths in the tree. */
export function filesBelow(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((path) => join(folder, path))
    .filter((path) => lstatSync(join(root, path)).isFile())
    .sort();
}
