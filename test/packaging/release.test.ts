import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { promisedTags } from '../../scripts/peers.js';
import { checksums } from '../../scripts/release.js';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('what is built names no folder of this machine, so that another one gets the same bytes', () => {
  const files = readdirSync('dist', { recursive: true, encoding: 'utf8' })
    .map((name) => join('dist', name))
    // npm leaves the maps out.
    .filter((path) => statSync(path).isFile() && !path.endsWith('.map'));
  expect(files.length).toBeGreaterThan(20);
  expect(files.filter((path) => readFileSync(path).includes(resolve('.')))).toEqual([]);
});

it('release.js --check names what keeps a checkout from being the release, and writes nothing', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/release.js', 'v99.0.0', '--check']);
  expect([status, String(stdout)]).toEqual([1, '']);
  expect(String(stderr)).toMatch(/^the checkout has changes|^tag v99\.0\.0 does not name the commit/);
});

it('checksums lists all files of a release but itself, as sha256sum checks them', () => {
  const folder = temporaryFolder();
  for (const name of ['b.tgz', 'a.deb']) writeFileSync(join(folder, name), name);
  writeFileSync(join(folder, 'SHA256SUMS'), checksums(folder));
  expect(checksums(folder).match(/\S+$/gm)).toEqual(['a.deb', 'b.tgz']);
  execFileSync('sha256sum', ['--check', '--strict', '--quiet', 'SHA256SUMS'], { cwd: folder });
});

it('promisedTags finds the newest release of this minor version and of the two before', () => {
  const tags = ['v1.4.0', 'v1.3.2', 'v1.3.1', 'v1.2.0', 'v1.1.9', 'v0.9.0'];
  expect(promisedTags(tags, '1.4.0')).toEqual(['v1.3.2', 'v1.2.0']);
  expect(promisedTags(tags, '1.4.1')).toEqual(['v1.4.0', 'v1.3.2', 'v1.2.0']);
  expect(promisedTags(tags, '2.0.0')).toEqual([]);
});
