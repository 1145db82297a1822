// JavaScript, as scripts/build.js.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { buildIfStale, run } from './build.js';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
process.chdir(ROOT);
const [command, ...rest] = process.argv.slice(2);
if (command === 'check' || command === 'measure') {
  // In Debian systems of their own; minutes.
  const files = command === 'measure' ? ['test/packaging/debian/economy.test.ts'] : [];
  const args = ['vitest', 'run', '--project', 'packages', ...files, ...rest];
  process.exitCode = spawnSync('npx', args, { stdio: 'inherit' }).status ?? 1;
} else {
  // Builds the packages to be published beside device-agent below `build/packages`: the management client, and the agent to
  // embed. `npm pack` and `npm publish` work in each folder. The tool for Debian packages is built with them.
  buildIfStale();
  run('rolldown', ['-c', 'scripts/packages/rolldown.config.ts']);
  if (command !== undefined) {
    const tool = new URL('../build/debian-command/debian-command.js', import.meta.url);
    try {
      (await import(tool.href)).runDebianCommand([command, ...rest]);
    } catch (error) {
      process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
      process.exitCode = 1;
    }
  }
}
