import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished, vi } from 'vitest';
import { CLI } from '../support/agent-process.ts';
import { startHttpService } from '../support/http-service.ts';
import { exchange } from '../support/https-exchange.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

vi.setConfig({ testTimeout: 300_000 });

/** The first command of the README that runs the package. */
const [COMMAND = ''] = /^npx .* http 3000$/m.exec(readFileSync('README.md', 'utf8')) ?? [];
/** On a quiet machine, with all packages in npm's cache; and without npm. */
const [WITH_NPM_MS, ALONE_MS] = [20_000, 3_000];
const SLOWER = 5;

/**
 * Runs a command in an empty folder until its URL works, then presses Ctrl-C.
 *
 * @returns milliseconds to the URL, and what is left in the folder and that for temporary files
 */
async function urlOf(command: string, files: readonly string[] = []): Promise<{ ms: number; left: string[] }> {
  const [folder, temporary] = [temporaryFolder(), temporaryFolder()];
  for (const file of files) copyFileSync(file, join(folder, basename(file)));
  const env = { ...process.env, TMPDIR: temporary, NGROK_AUTHTOKEN: '' };
  const began = performance.now();
  // In a terminal, Ctrl-C reaches the whole group.
  const child = spawn('sh', ['-c', command], {
    cwd: folder,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const kill = (signal: NodeJS.Signals) => process.kill(-Number(child.pid), signal);
  const closed = once(child, 'close');
  onTestFinished(() => void (child.exitCode === null && child.signalCode === null && kill('SIGKILL')));
  let shown = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    shown += text;
  });
  await until(() => / -> /.test(shown) || child.exitCode !== null, 'the URL', { withinMs: 240_000, everyMs: 10 });
  const ms = performance.now() - began;
  const [, url = ''] = /^(https:\S+) -> /m.exec(shown) ?? [];
  expect(String((await exchange(url)).body)).toBe('what listens at port 3000');
  kill('SIGINT');
  await closed;
  return { ms, left: [...readdirSync(temporary), ...readdirSync(folder)] };
}

it('the README’s first command opens a tunnel from the package in an empty folder, in time, and leaves nothing', async () => {
  const service = await startHttpService((_request, res) => res.end('what listens at port 3000'));
  onTestFinished(() => service.close());
  const { port } = new URL(service.url);
  const packed = temporaryFolder();
  await promisify(execFile)('npm', ['pack', '--ignore-scripts', '--pack-destination', packed]);
  const [name = ''] = readdirSync(packed);
  expect(COMMAND).toBe(`npx --yes ./${name} http 3000`);
  const command = COMMAND.replace('3000', port);
  // npx installs a file of each folder again: the first time fills npm's cache.
  await urlOf(command, [join(packed, name)]);
  const withNpm = await urlOf(command, [join(packed, name)]);
  expect(withNpm.left).toEqual([name]);
  const env = { ...process.env, AGENT_PORT: '1', DEVICE_AGENT_COMMAND: '' };
  const withoutAgent = promisify(execFile)('npx', ['--yes', `./${name}`, 'status'], { cwd: packed, env });
  await expect(withoutAgent).rejects.toMatchObject({
    code: 3,
    stderr: expect.stringContaining(`start it with: npx ./${name} run\n`),
  });
  const alone = await urlOf(`exec "${process.execPath}" "${CLI}" http ${port}`);
  expect(alone.left).toEqual([]);
  const [packed_s, agent_s] = [withNpm.ms, alone.ms].map((ms) => (ms / 1000).toFixed(1));
  process.stdout.write(`  measured: the README’s first command: ${packed_s} s with npx, ${agent_s} s without\n`);
  expect(withNpm.ms).toBeLessThan(WITH_NPM_MS * SLOWER);
  expect(alone.ms).toBeLessThan(ALONE_MS * SLOWER);
});
