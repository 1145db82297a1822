import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { outcomeOf } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const run = promisify(execFile);
const MB = 1e6;

it('npm start in a checkout without the build tools says how to install them', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'scripts'));
  cpSync('scripts/build.js', join(folder, 'scripts/build.js'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const { code, stderr } = await outcomeOf(process.execPath, ['scripts/build.js', '--if-stale'], folder);
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^cannot build: [^\n]*npm ci --include=dev [^\n]*\n$/)]);
});

it('an installation without optional packages has neither database nor SDK, has at most 10 MB to fetch, and says what a gateway needs', async () => {
  const [packed, prefix, folder] = [temporaryFolder(), temporaryFolder(), temporaryFolder()];
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', packed]);
  const [name = ''] = readdirSync(packed);
  // With --global, npm ignores --omit (npm/cli issue 8284).
  const options = ['--prefix', prefix, '--omit=optional', '--no-audit', '--no-fund', '--prefer-offline'];
  await run('npm', ['install', ...options, join(packed, name)]);
  const program = join(prefix, 'node_modules');
  const files = readdirSync(program, { recursive: true, encoding: 'utf8' }).map((path) => join(program, path));
  expect(files.filter((path) => /libsql|\.node$/.test(path))).toEqual([]);
  expect(statSync(join(packed, name)).size).toBeLessThan(10 * MB);
  const { code, stderr } = await outcomeOf(join(program, '.bin/device-agent'), ['gateway'], folder);
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(
      /^device-agent: cannot load the gateway's database engine \(Cannot find module 'libsql'\): install device-agent again [^\n]*\n$/,
    ),
  ]);
}, 300_000);
