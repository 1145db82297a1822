import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import packageJson from '../../package.json' with { type: 'json' };
import publication from '../../packaging/publication.json' with { type: 'json' };
import { AGENT_SERVICE, GATEWAY_SERVICE, type Service } from '../../src/service/service.ts';
import {
  type Architecture,
  DESCRIPTIONS,
  dependsOf,
  hasOwnNode,
  maintainerScripts,
  nodeOf,
  systemdFiles,
} from './debian-files.ts';
import { execute } from './execute.ts';
import {
  fetchModules,
  fetchNode,
  filesBelow,
  setModes,
  sourceDate,
  stageProgram,
  stageStart,
  stripModules,
  write,
} from './program.ts';

const PROGRAM = 'usr/lib/device-agent';
const { name: MAINTAINER, email: EMAIL } = publication.maintainer;

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
      stageProgram(service, join(root, PROGRAM), modules);
      if (service === AGENT_SERVICE) stageAgentOnly(root, architecture, options);
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

function stageAgentOnly(root: string, architecture: Architecture, { draft, version }: DebOptions): void {
  stageStart(join(root, PROGRAM), nodeOf(architecture), version);
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

const gzip = (text: string) => gzipSync(text, { level: 9 });
