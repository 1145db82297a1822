import { execFile, spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { nodeBinary } from '../../scripts/node-binary.js';
import { firstOf, type Missing, NO_LINUX, NO_ROOT, programMissing } from './requirements.ts';

const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

/** Why this machine cannot build images; null when it can. */
export const NO_IMAGE_BUILDER: Missing = firstOf(
  NO_LINUX,
  NO_ROOT,
  programMissing('buildah', '--version'),
  programMissing('unshare', '--mount', '--pid', '--fork', 'true') && 'permission to create namespaces is required',
);

/** Where the kernel has overlays, layers are not copied. */
const DRIVER = NO_IMAGE_BUILDER === null && overlaysWork() ? 'overlay' : 'vfs';

function overlaysWork(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'overlay-'));
  const script =
    'cd "$0" && mkdir low up work all && mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=work all';
  const { status } = spawnSync('unshare', ['--mount', 'sh', '-c', script, folder], { stdio: 'ignore' });
  rmSync(folder, { recursive: true });
  return status === 0;
}

/** The runtime configuration of an image. */
export interface ImageConfig {
  User: string;
  Env: string[];
  Entrypoint: string[];
  Cmd: string[];
  WorkingDir: string;
  Volumes: Record<string, object>;
  Healthcheck: { Test: string[] };
  Labels: Record<string, string>;
}

/** The major version of Node.js in the image. */
export function imageNodeVersion(): string {
  return /NODE_IMAGE=\S+node:(\d+)-/.exec(readFileSync('Dockerfile', 'utf8'))?.[1] ?? '';
}

/** The arguments of a build that replace the base images by those of `copyBases`. */
export const BASE_ARGUMENTS = [
  '--build-arg=NODE_IMAGE=localhost/tools',
  '--build-arg=NODE_IMAGE_ARM=localhost/tools',
  '--build-arg=BASE_IMAGE=localhost/libraries',
];

/** Files and environment of an image without a base. */
interface BaseImage {
  name: string;
  folder: string;
  env: string[];
}

/** Copies files of this machine for substitutes of the Node.js and base images into new folders of this one. */
export function copyBases(folder: string): BaseImage[] {
  const tools = join(folder, 'tools');
  const libraries = join(folder, 'libraries');
  const npm = dirname(dirname(realpathSync(which('npm'))));
  const node = nodeBinary(imageNodeVersion());
  copyProgram(node, join(tools, 'usr/local/bin/node'), tools);
  for (const tool of ['sh', 'env', 'rm', 'mkdir', 'find']) copyProgram(which(tool), join(tools, 'bin', tool), tools);
  cpSync(npm, join(tools, 'usr/local/lib/node_modules/npm'), { recursive: true, dereference: true });
  for (const name of ['npm', 'npx'])
    symlinkSync(`../lib/node_modules/npm/bin/${name}-cli.js`, join(tools, 'usr/local/bin', name));
  mkdirSync(join(tools, 'usr/bin'), { recursive: true });
  symlinkSync('/bin/env', join(tools, 'usr/bin/env'));
  mkdirSync(join(tools, 'tmp'));
  cpSync(CERTIFICATES, join(tools, CERTIFICATES), { dereference: true });
  for (const path of librariesOf(node)) copyLibrary(path, libraries);
  for (const name of ['proc', 'dev', 'sys', 'tmp']) mkdirSync(join(libraries, name));
  const env = ['HOME=/root', `NODE_EXTRA_CA_CERTS=${CERTIFICATES}`, 'npm_config_prefer_offline=true'];
  return [
    { name: 'localhost/tools', folder: tools, env },
    { name: 'localhost/libraries', folder: libraries, env: [] },
  ];
}

/** The test's own image store, filled with buildah, without any registry. */
export class ImageStore {
  readonly #folder = mkdtempSync(join(tmpdir(), 'images-'));

  /** Creates substitutes for the Node.js and base images from files of this machine. */
  async makeBases(): Promise<void> {
    for (const { name, folder, env } of copyBases(this.#folder)) {
      const container = await this.#buildah('from', 'scratch');
      await this.#buildah('copy', '--quiet', container, folder, '/');
      for (const assignment of env) await this.#buildah('config', '--env', assignment, container);
      await this.#buildah('commit', '--quiet', '--rm', container, name);
      rmSync(folder, { recursive: true });
    }
  }

  /** Builds the repository's Dockerfile. */
  async build(name: string, arch: string, ...more: string[]): Promise<void> {
    const cache = (await promisify(execFile)('npm', ['config', 'get', 'cache'])).stdout.trim();
    mkdirSync(cache, { recursive: true });
    const target = [`--build-arg=ARCH=${arch}`, `--build-arg=TARGETARCH=${arch}`];
    await this.buildFolder('.', name, ...BASE_ARGUMENTS, ...target, `--volume=${cache}:/root/.npm`, ...more);
  }

  /** Builds the Dockerfile of a folder. */
  async buildFolder(folder: string, name: string, ...more: string[]): Promise<void> {
    const options = ['--isolation=chroot', '--format=docker', '--pull-never', ...more];
    await this.#buildah('build', ...options, '--tag', `localhost/${name}`, folder);
  }

  async config(name: string): Promise<ImageConfig> {
    return JSON.parse(await this.#buildah('inspect', '--type=image', `localhost/${name}`)).Docker.config;
  }

  /** Mounts the files of an image, to read or run them. */
  async mount(name: string): Promise<string> {
    return this.#buildah('mount', await this.#buildah('from', '--pull-never', `localhost/${name}`));
  }

  async remove(): Promise<void> {
    await this.#buildah('umount', '--all');
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #buildah(...args: string[]): Promise<string> {
    const store = [`--storage-driver=${DRIVER}`, `--root=${this.#folder}/root`, `--runroot=${this.#folder}/run`];
    const { stdout } = await promisify(execFile)('buildah', [...store, ...args], { maxBuffer: 1 << 26 });
    return stdout.trim();
  }
}

/** $0: root, $1: data folder, $2: user, $3: working folder, then the command. */
const RUN = `
set -e
if [ -n "$UNPRIVILEGED_PORTS_FROM" ]; then
  PATH=$PATH:/usr/sbin:/sbin
  ip link set lo up
  sysctl -qw net.ipv4.ip_unprivileged_port_start="$UNPRIVILEGED_PORTS_FROM"
fi
mount --make-rprivate /
mount --bind "$0" "$0"
mount --bind "$1" "$0/data"
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/dev"
mkdir -m 1777 "$0/dev/shm"
for name in null urandom; do touch "$0/dev/$name"; mount --bind /dev/$name "$0/dev/$name"; done
mount -o remount,bind,ro "$0"
root=$0 user=$2 folder=$3
shift 3
exec unshare --root="$root" --wd="$folder" --setuid="$user" --setgid="$user" "$@"
`;

/**
 * Starts a command like container engines: process 1 of a namespace, read-only root, no privileges, own environment, in the machine's
 * network. With `UNPRIVILEGED_PORTS_FROM` in `env`, in a network of its own where users other than root may listen on ports from there on.
 */
export function spawnContainer(root: string, data: string, config: ImageConfig, env: string[], command: string[]) {
  const user = config.User.split(':')[0] ?? '';
  const network = env.some((line) => line.startsWith('UNPRIVILEGED_PORTS_FROM=')) ? ['--net'] : [];
  const run = [...network, '--mount', '--pid', '--fork', '--kill-child', '--ipc', '--uts', 'sh', '-c', RUN];
  const pairs = [...config.Env, ...env].map((line) => [
    line.slice(0, line.indexOf('=')),
    line.slice(line.indexOf('=') + 1),
  ]);
  // The set-up uses the machine's tools at the same paths.
  return spawn('/usr/bin/unshare', [...run, root, data, user, config.WorkingDir, ...config.Entrypoint, ...command], {
    env: Object.fromEntries(pairs),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

function which(program: string): string {
  const found = (process.env.PATH ?? '').split(':').map((folder) => join(folder, program));
  return found.find((path) => spawnSync('test', ['-x', path]).status === 0) ?? program;
}

function copyProgram(from: string, to: string, root: string): void {
  cpSync(realpathSync(from), to);
  for (const path of librariesOf(from)) copyLibrary(path, root);
}

function copyLibrary(path: string, root: string): void {
  cpSync(realpathSync(path), join(root, path));
}

/** The libraries of a program, and librt, which native modules may need. */
function librariesOf(program: string): string[] {
  const { stdout } = spawnSync('ldd', [program], { encoding: 'utf8' });
  const needed = [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1] ?? '');
  const folders = new Set(needed.map((path) => dirname(path)));
  return [...needed, ...[...folders].map((folder) => join(folder, 'librt.so.1')).filter((path) => existsSync(path))];
}

/** The processor architecture of a native module. */
export function machineOf(file: string): string {
  const names: Record<number, string> = { 3: 'x86', 40: 'arm', 62: 'x86-64', 183: 'aarch64' };
  return names[readFileSync(file).readUInt16LE(18)] ?? 'unknown';
}
