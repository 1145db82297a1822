import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { outcomeOf } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('npm start in a checkout without the build tools says how to install them', async () => {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'scripts'));
  cpSync('scripts/build.js', join(folder, 'scripts/build.js'));
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  const { code, stderr } = await outcomeOf(process.execPath, ['scripts/build.js', '--if-stale'], folder);
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^cannot build: [^\n]*npm ci --include=dev [^\n]*\n$/)]);
});
