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
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import packageJson from '../../package.json' with { type: 'json' };
import node from '../../packaging/node.json' with { type: 'json' };
import publication from '../../packaging/publication.json' with { type: 'json' };
import { AGENT_SERVICE, GATEWAY_SERVICE, type Service } from '../../src/service/service.ts';
import {
  ARCHITECTURES,
  type Architecture,
  DESCRIPTIONS,
  dependsOf,
  hasOwnNode,
  maintainerScripts,
  nodeOf,
  systemdFiles,
} from './debian-files.ts';
import { execute } from './execute.ts';

const CACHE = 'node_modules/.cache/debian';
const PROGRAM = 'usr/lib/device-agent';
const { name: MAINTAINER, email: EMAIL } = publication.maintainer;

/** Of the pages, what only the gateway serves. */
const GATEWAY_PAGES = /^dist\/web\/(gateway\/|assets\/(gateway-|sign-in\.))/;
/** Of the packages from npm, what nothing reads. */
const UNREAD = /(\.md|\.d\.ts|\.map)$|\/types\//;

export interface DebOptions {
  architectures: readonly Architecture[];
  /** Folder for the packages. */
  folder: string;
  /** As package.json has it, or another one. */
  version: string;
  /** Takes seconds in place of minutes, for packages that are half as large again. */
  fast: boolean;
  /** For tests: with what the checkout has, an empty file in place of Node.js, and debug symbols. */
  draft: boolean;
}

/**
 * Builds the Debian packages of agent and gateway from `dist`. The same commit gives the same bytes.
 *
 * @returns their paths
 * @throws Error when something cannot be fetched, or is not what the checksums say
 */
export function buildDebs(options: DebOptions): string[] {
  mkdirSync(options.folder, { recursive: true });
  return options.architectures.flatMap((architecture) => {
    const modules = options.draft ? '.' : fetchModules(architecture);
    return [AGENT_SERVICE, GATEWAY_SERVICE].map((service) => {
      const root = join(options.folder, `${service.name}-${architecture}`);
      rmSync(root, { recursive: true, force: true });
      stageProgram(service, root, modules);
      if (service === AGENT_SERVICE) stageAgentOnly(root, architecture, options.draft);
      if (!options.draft) stripModules(root, architecture);
      for (const [path, text] of Object.entries(systemdFiles(service, architecture))) write(root, path, text);
      stageDocumentation(service, root, options.version);
      const file = packed(service, root, architecture, options);
      rmSync(root, { recursive: true });
      return file;
    });
  });
}

/** Debian's order of versions needs another sign before a pre-release: 1.0.0-beta.1 is before 1.0.0. */
export const debianVersion = (version: string): string => version.replace('-', '~');

/** Copies the program: what an agent needs, or the rest that makes a gateway of it. */
function stageProgram(service: Service, root: string, modules: string): void {
  const gatewayChunks: string[] = JSON.parse(readFileSync('build/gateway-chunks.json', 'utf8'));
  const ofGateway = (path: string) =>
    GATEWAY_PAGES.test(path) ||
    gatewayChunks.includes(path.replace(/^dist\//, '')) ||
    /libsql|neon-rs|detect-libc/.test(path);
  const isLeftOut = (path: string) =>
    /\.map$|\.d\.ts$|\/(THIRD-PARTY-LICENSES\.txt|sbom\.cdx\.json)$|^dist\/management\//.test(path);
  const program = [...filesBelow('.', 'dist'), 'defaults/policies.json'].filter((path) => !isLeftOut(path));
  const packages = productionPackages(modules)
    .flatMap((path) => filesBelow(modules, path))
    .filter((path) => !UNREAD.test(path));
  for (const [from, paths] of [['.', program] as const, [modules, packages] as const]) {
    for (const path of paths.filter((each) => ofGateway(each) === (service === GATEWAY_SERVICE))) {
      const target = join(root, PROGRAM, path);
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

function stripModules(root: string, architecture: Architecture): void {
  for (const path of filesBelow(root, '').filter((each) => each.endsWith('.node')))
    strip(join(root, path), architecture);
}

function stageAgentOnly(root: string, architecture: Architecture, draft: boolean): void {
  const interpreter = nodeOf(architecture);
  const cli = join(root, PROGRAM, 'dist/cli.js');
  writeFileSync(cli, readFileSync(cli, 'utf8').replace(/^#!.*/, `#!${interpreter}`));
  const { name, version, license, type } = packageJson;
  write(root, `${PROGRAM}/package.json`, `${JSON.stringify({ name, version, license, type, private: true })}\n`);
  mkdirSync(join(root, 'usr/bin'), { recursive: true });
  symlinkSync('../lib/device-agent/dist/cli.js', join(root, 'usr/bin/device-agent'));
  if (hasOwnNode(architecture)) {
    mkdirSync(join(root, PROGRAM, 'bin'), { recursive: true });
    const target = join(root, PROGRAM, 'bin/node');
    if (draft) writeFileSync(target, '');
    else {
      const { binary, license: text } = fetchNode(architecture);
      copyFileSync(binary, target);
      write(root, '/usr/share/doc/device-agent/nodejs-license.gz', gzip(readFileSync(text, 'utf8')));
    }
    write(root, '/usr/share/lintian/overrides/device-agent', OVERRIDES);
  }
  write(root, '/usr/share/man/man1/device-agent.1.gz', gzip(readFileSync('packaging/device-agent.1', 'utf8')));
  for (const [shell, path] of [
    ['bash', '/usr/share/bash-completion/completions/device-agent'],
    ['zsh', '/usr/share/zsh/vendor-completions/_device-agent'],
    ['fish', '/usr/share/fish/vendor_completions.d/device-agent.fish'],
  ] as const) {
    write(root, path, execute(process.execPath, ['dist/cli.js', 'completion', shell]));
  }
  const documents = '/usr/share/doc/device-agent';
  write(root, `${documents}/third-party-licenses.gz`, gzip(readFileSync('dist/THIRD-PARTY-LICENSES.txt', 'utf8')));
  write(root, `${documents}/sbom.cdx.json.gz`, gzip(readFileSync('dist/sbom.cdx.json', 'utf8')));
}

/** lintian expects Debian's own Node.js; the official binary has its libraries inside. */
const OVERRIDES = ['wrong-path-for-interpreter', 'missing-dep-for-interpreter', 'embedded-library', 'hardening-no-pie']
  .map((tag) => `device-agent: ${tag} *\n`)
  .join('');

function stageDocumentation({ name }: Service, root: string, version: string): void {
  const date = new Date(sourceDate() * 1000);
  const entry = [
    `${name} (${debianVersion(version)}) ${publication.apt.suite}; urgency=medium`,
    '',
    `  * Version ${version}: ${publication.repository} has the changes.`,
    '',
    ` -- ${MAINTAINER} <${EMAIL}>  ${date.toUTCString().replace('GMT', '+0000')}`,
    '',
  ].join('\n');
  write(root, `/usr/share/doc/${name}/changelog.gz`, gzip(entry));
  const nodeLicence = `
Files: ${PROGRAM}/bin/node
Copyright: Node.js contributors, and others that nodejs-license.gz names
License: MIT
Comment: the full text is in /usr/share/doc/device-agent/nodejs-license.gz
`;
  write(
    root,
    `/usr/share/doc/${name}/copyright`,
    `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ${publication.name}
Source: ${publication.repository}

Files: *
Copyright: ${date.getUTCFullYear()} ${MAINTAINER}
License: ${packageJson.license}
Comment: The licences of the packages that the program contains are in
 /usr/share/doc/device-agent/third-party-licenses.gz
${name === AGENT_SERVICE.name ? nodeLicence : ''}
License: ${packageJson.license}
 On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0
${
  name === AGENT_SERVICE.name
    ? `
License: MIT
 Permission is hereby granted, free of charge, to any person obtaining a copy
 of this software and associated documentation files (the "Software"), to deal
 in the Software without restriction, as nodejs-license.gz says in full.
`
    : ''
}`,
  );
}

/** Writes the control files, and makes the package. */
function packed(service: Service, root: string, architecture: Architecture, options: DebOptions): string {
  const { name } = service;
  const version = debianVersion(options.version);
  const bytes = filesBelow(root, '').reduce((sum, path) => sum + statSync(join(root, path)).size, 0);
  const fields = {
    Package: name,
    Version: version,
    Architecture: architecture,
    Maintainer: `${MAINTAINER} <${EMAIL}>`,
    'Installed-Size': String(Math.ceil(bytes / 1024)),
    ...dependsOf(service, architecture, version),
    Section: 'net',
    Priority: 'optional',
    Homepage: publication.homepage,
    Description: DESCRIPTIONS[name],
  };
  write(
    root,
    '/DEBIAN/control',
    Object.entries(fields)
      .map(([field, value]) => `${field}: ${value}\n`)
      .join(''),
  );
  const sums = filesBelow(root, '').filter((path) => !path.startsWith('DEBIAN/'));
  const md5 = (path: string) =>
    createHash('md5')
      .update(readFileSync(join(root, path)))
      .digest('hex');
  write(root, '/DEBIAN/md5sums', sums.map((path) => `${md5(path)}  ${path}\n`).join(''));
  const scripts = maintainerScripts(service);
  for (const [script, text] of Object.entries(scripts)) write(root, `/DEBIAN/${script}`, text);
  setModes(root, ['bin/node', 'dist/cli.js', ...Object.keys(scripts)]);
  const file = join(options.folder, `${name}_${version}_${architecture}.deb`);
  // Level 6 takes 9 MB of memory to unpack, level 9 65 MB for a package that is 1 % smaller.
  const compression = options.fast ? ['-Zgzip', '-z1'] : ['-Zxz', '-z6', '--threads-max=1'];
  execute('dpkg-deb', ['--root-owner-group', ...compression, '--build', root, file], '.', {
    SOURCE_DATE_EPOCH: String(sourceDate()),
  });
  return file;
}

function setModes(root: string, executables: readonly string[]): void {
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
function sourceDate(): number {
  const { SOURCE_DATE_EPOCH } = process.env;
  if (SOURCE_DATE_EPOCH) return Number(SOURCE_DATE_EPOCH);
  commitDate ??= Number(execute('git', ['log', '-1', '--format=%ct']));
  return commitDate;
}

/** The packages from npm with native code for an architecture, as package-lock.json has them. */
function fetchModules(architecture: Architecture): string {
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
function fetchNode(architecture: Architecture): { binary: string; license: string } {
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

const gzip = (text: string) => gzipSync(text, { level: 9 });

function write(root: string, path: string, content: string | Buffer): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

function filesBelow(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((path) => join(folder, path))
    .filter((path) => lstatSync(join(root, path)).isFile())
    .sort();
}
