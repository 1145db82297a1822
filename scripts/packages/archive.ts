import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { AGENT_SERVICE, GATEWAY_SERVICE } from '../../src/service/service.ts';
import { ARCHITECTURES, type Architecture, hasOwnNode } from './debian-files.ts';
import { execute } from './execute.ts';
import { fetchModules, fetchNode, setModes, sourceDate, stageProgram, stageStart, stripModules } from './program.ts';

/** Where docs/updates.md installs it. */
const INSTALLED = '/opt/device-agent/current';

/**
 * Builds the archive for an installation in a folder of its own: agent and gateway with Node.js. The same commit gives the same
 * bytes.
 *
 * @param folder for the archive
 * @param version as package.json has it, or another one
 * @returns its path
 * @throws Error when something cannot be fetched, or is not what the checksums say
 */
export function buildArchive(architecture: Architecture, folder: string, version: string): string {
  const work = join(folder, `archive-${architecture}`);
  const program = join(work, version);
  rmSync(work, { recursive: true, force: true });
  mkdirSync(join(program, 'bin'), { recursive: true });
  for (const service of [AGENT_SERVICE, GATEWAY_SERVICE]) stageProgram(service, program, fetchModules(architecture));
  stripModules(program, architecture);
  stageStart(program, hasOwnNode(architecture) ? `${INSTALLED}/bin/node` : '/usr/bin/node', version);
  copyFileSync('dist/THIRD-PARTY-LICENSES.txt', join(program, 'THIRD-PARTY-LICENSES.txt'));
  if (hasOwnNode(architecture)) {
    const { binary, license } = fetchNode(architecture);
    copyFileSync(binary, join(program, 'bin/node'));
    copyFileSync(license, join(program, 'bin/LICENSE'));
  }
  setModes(work, ['bin/node', 'dist/cli.js']);
  const file = join(folder, `device-agent-${version}-linux-${ARCHITECTURES[architecture]}.tar.xz`);
  const owner = [
    '--owner=0',
    '--group=0',
    '--numeric-owner',
    '--sort=name',
    '--format=ustar',
    `--mtime=@${sourceDate()}`,
  ];
  // Several threads would give other bytes on machines with other numbers of cores.
  execute('tar', ['-C', work, ...owner, '-I', 'xz -6 --threads=1', '-cf', file, version]);
  rmSync(work, { recursive: true });
  return file;
}
