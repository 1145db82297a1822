// npm run dev: bundles src/ into .dev/ at every change, and restarts the agent. Arguments go to the command line.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { watch } from 'rolldown';

const OUTPUT = '.dev';
rmSync(OUTPUT, { recursive: true, force: true });

/** @type {import('node:child_process').ChildProcess | null} */
let agent = null;
/** Stops and starts, one after another. */
let restarts = Promise.resolve();

function start() {
  agent = spawn(process.execPath, ['--enable-source-maps', `${OUTPUT}/cli.js`, ...process.argv.slice(2)], {
    stdio: 'inherit',
    // From Node.js 22 on: packages are compiled once, not at every restart.
    env: { NODE_COMPILE_CACHE: `${OUTPUT}/compiled`, ...process.env },
  });
}

async function stop() {
  const running = agent;
  agent = null;
  if (!running || running.exitCode !== null || running.signalCode !== null) return;
  running.kill('SIGTERM');
  await once(running, 'exit');
}

const watcher = watch({
  input: { cli: 'src/cli.ts' },
  platform: 'node',
  transform: { target: 'node20' },
  // Packages are not bundled: a rebuild takes 0.2 s instead of 2 s.
  external: (id) => !id.startsWith('.') && !isAbsolute(id),
  output: { dir: OUTPUT, format: 'esm', sourcemap: true },
});
watcher.on('event', (event) => {
  // The agent stops while its successor is built.
  if (event.code === 'START') restarts = restarts.then(stop);
  if (event.code === 'ERROR') process.stderr.write(`${event.error.message}\n`);
  if (event.code === 'BUNDLE_END') {
    process.stderr.write(`built in ${event.duration} ms\n`);
    restarts = restarts.then(start);
    void event.result.close();
  }
});

for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM']))
  process.once(signal, async () => {
    await watcher.close();
    await restarts;
    await stop();
    process.exit();
  });
