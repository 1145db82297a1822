// node scripts/reproduce.js build/release/1.2.3: builds the commit of a release again, in another folder, and compares all bytes.
// The packages of one commit are the same on each machine with the same version of Node.js.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

const folder = process.argv[2] ?? '';
const version = basename(folder);
const before = readFileSync(join(folder, 'SHA256SUMS'), 'utf8').trimEnd().split('\n');
const [, commit = ''] = /^SOURCE_COMMIT=(.+)$/m.exec(readFileSync(join(folder, 'image.args'), 'utf8')) ?? [];
const home = mkdtempSync(join(tmpdir(), 'reproduced-'));
try {
  const run = (/** @type {string} */ command, /** @type {string[]} */ ...args) =>
    execFileSync(command, args, {
      cwd: home,
      // Whatever differs between two machines may not matter.
      env: { ...process.env, TZ: 'Asia/Tokyo', LANG: 'C' },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  run('git', 'clone', '--quiet', '--no-checkout', process.cwd(), '.');
  run('git', 'checkout', '--quiet', commit);
  run('npm', 'ci', '--prefer-offline');
  run(process.execPath, 'scripts/release.js', `v${version}`, '--rehearsal');
  const after = readFileSync(join(home, folder, 'SHA256SUMS'), 'utf8')
    .trimEnd()
    .split('\n');
  const different = [...before, ...after].filter((line) => !(before.includes(line) && after.includes(line)));
  if (different.length > 0) throw new Error(`different bytes:\n${different.join('\n')}`);
  process.stdout.write(`the same bytes in ${before.length} files, of the commit ${commit}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
  process.exitCode = 1;
} finally {
  rmSync(home, { recursive: true });
}
