// node scripts/reproduce.js build/release/1.2.3: builds the commit of a release again, in another folder, and compares all bytes,
// with those of an apt repository of its Debian packages. The packages of one commit are the same on each machine with the same
// versions of Node.js, dpkg, binutils, tar, gzip and xz.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { checksums } from './release.js';

const folder = process.argv[2] ?? '';
const version = basename(folder);
const before = readFileSync(join(folder, 'SHA256SUMS'), 'utf8').trimEnd().split('\n');
const [, commit = ''] = /^SOURCE_COMMIT=(.+)$/m.exec(readFileSync(join(folder, 'image.args'), 'utf8')) ?? [];
const home = mkdtempSync(join(tmpdir(), 'reproduced-'));
// Whatever differs between two machines may not matter.
process.umask(0o077);
/** @type {NodeJS.ProcessEnv} */
const env = { ...process.env, TZ: 'Asia/Tokyo', LC_ALL: 'C' };
/** @type {(command: string, ...args: string[]) => string} */
const run = (command, ...args) =>
  execFileSync(command, args, { cwd: home, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

/**
 * The files of an apt repository of a folder's Debian packages, and their SHA-256.
 *
 * @param {string} release
 * @param {string} name of a new folder for it
 */
function repositoryOf(release, name) {
  const debs = readdirSync(release).filter((each) => each.endsWith('.deb'));
  const paths = debs.map((each) => resolve(release, each));
  if (paths.length === 0) return [];
  env.SOURCE_DATE_EPOCH = run('git', 'log', '-1', '--format=%ct').trim();
  run('npm', 'run', 'packages', '--', 'apt', name, '--unsigned', ...paths);
  return checksums(join(home, name)).trimEnd().split('\n');
}

try {
  run('git', 'clone', '--quiet', '--no-checkout', process.cwd(), '.');
  run('git', 'checkout', '--quiet', commit);
  run('npm', 'ci', '--prefer-offline');
  run(process.execPath, 'scripts/release.js', `v${version}`, '--rehearsal');
  const again = join(home, folder);
  const after = readFileSync(join(again, 'SHA256SUMS'), 'utf8').trimEnd().split('\n');
  const [here, there] = [
    [...before, ...repositoryOf(folder, 'apt-before')],
    [...after, ...repositoryOf(again, 'apt-after')],
  ];
  const different = [...here, ...there].filter((line) => !(here.includes(line) && there.includes(line)));
  if (different.length > 0) throw new Error(`different bytes:\n${different.join('\n')}`);
  process.stdout.write(`the same bytes in ${here.length} files, of the commit ${commit}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exitCode = 1;
} finally {
  rmSync(home, { recursive: true, force: true });
}
