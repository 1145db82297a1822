import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import { temporaryFolder } from '../support/temporary-folder.ts';
import { TwoPrograms } from './two-programs.ts';

/**
 * Data folders of a gateway and a device that joined it, as each release has written them. `RECORD_DATA=1 npx vitest run
 * test/promises/recorded-data` records those of this version, once for each release.
 */
const RECORDED = join(import.meta.dirname, 'recorded');
const versions = readdirSync(RECORDED).map((name) => name.replace('.tar.gz', ''));
/** What is not data: certificates that are made again, sockets, and the time of the start. */
const LEFT_OUT = ['leaves', 'lock', '.starts.json', 'online-addresses.jsonl'];

if (process.env.RECORD_DATA)
  it('records the data of this version', async () => {
    const programs = await TwoPrograms.create({});
    await programs.startGateway();
    await programs.gatewayCommand('api-key', 'create', '--description', 'laptop');
    const { code } = await programs.gatewayCommand<{ code: string }>('invite', '--site', '*.site.localhost');
    await programs.startDevice('native', code);
    await programs.openTunnel();
    await programs.served();
    await programs.stopDevice();
    await programs.stopGateway();
    const file = join(RECORDED, `${packageJson.version}.tar.gz`);
    const excluded = LEFT_OUT.map((name) => `--exclude=${name}`);
    execFileSync('tar', ['-czf', file, ...excluded, '-C', programs.root, 'gateway', 'device']);
  });

it('there is a recording of this version or of the one before', () => {
  const minor = (version: string) => version.split('.').slice(0, 2).map(Number);
  const [major, latest = 0] = minor(packageJson.version);
  expect(versions.map(minor).some(([each, at = 0]) => each === major && latest - at <= 1)).toBe(true);
});

it.each(versions)('gateway and device start from the data of %s, and everything is there', async (version) => {
  const root = temporaryFolder();
  execFileSync('tar', ['-xzf', join(RECORDED, `${version}.tar.gz`), '-C', root]);
  const programs = await TwoPrograms.create({}, root);
  const before = programs.identity();
  await programs.startGateway();
  await programs.startDevice('native');
  await programs.moveTunnel();
  await programs.served();
  expect(programs.identity()).toEqual(before);
  expect(await programs.gatewayCommand('api-key', 'list')).toMatchObject([{ description: 'laptop' }]);
  const devices = await programs.gatewayCommand('devices', 'list');
  expect(devices).toMatchObject([{ name: 'cam', site: 'site.localhost' }]);
});
