// node scripts/peers.js COMMIT…: tries a device of each earlier version with this gateway, and this device with its gateway. Builds
// the earlier versions in temporary folders. Without arguments: the newest tag of each of the two minor versions before this one.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildIfStale } from './build.js';

/** How many minor versions device and gateway may be apart: docs/promises.md. */
const APART = 2;

/**
 * The newest tag of each minor version that has to work with this one, newest first.
 *
 * @param {string[]} tags newest first
 * @param {string} version of this program
 * @returns {string[]}
 */
export function promisedTags(tags, version) {
  const [major, minor = 0] = version.split('.').map(Number);
  const found = Array.from({ length: APART + 1 }, (_, back) =>
    tags.find((tag) => tag.startsWith(`v${major}.${minor - back}.`) && tag !== `v${version}`),
  );
  return found.filter((tag) => tag !== undefined);
}

function main() {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  const tags = execFileSync('git', ['tag', '--sort=-v:refname', '--list', 'v*'], { encoding: 'utf8' }).split('\n');
  const commits = process.argv.length > 2 ? process.argv.slice(2) : promisedTags(tags, version);
  if (commits.length === 0) throw new Error('there is no earlier version with a tag: name a commit');
  buildIfStale();
  for (const commit of commits) {
    const home = mkdtempSync(join(tmpdir(), 'earlier-'));
    try {
      const run = (/** @type {string} */ command, /** @type {string[]} */ ...args) =>
        execFileSync(command, args, { cwd: home, stdio: ['ignore', 'ignore', 'inherit'] });
      run('git', 'clone', '--quiet', process.cwd(), '.');
      run('git', 'checkout', '--quiet', commit);
      run('npm', 'ci', '--prefer-offline');
      run('npx', 'rolldown', '-c');
      process.stdout.write(`with ${commit}:\n`);
      const env = { ...process.env, EARLIER_CLI: join(home, 'dist/cli.js') };
      const { status } = spawnSync('npx', ['vitest', 'run', 'test/promises/peers'], { env, stdio: 'inherit' });
      if (status !== 0) process.exitCode = 1;
    } finally {
      rmSync(home, { recursive: true });
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    main();
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exitCode = 1;
  }
}
