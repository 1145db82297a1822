import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readlinkSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { thisHost } from '../../src/service/host.ts';
import { FolderInstallation, placeOf } from '../../src/update/installed-program.ts';
import { diskFiles } from '../../src/update/update-files.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Writes a program that says its version. */
function writeProgram(folder: string, version: string, says = version): void {
  mkdirSync(join(folder, 'dist'), { recursive: true });
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ version }));
  writeFileSync(join(folder, 'dist/cli.js'), `console.log(${JSON.stringify(says)})`);
}

/** The archive of a version. */
function archiveOf(...program: [version: string, says?: string]): string {
  const folder = temporaryFolder();
  writeProgram(join(folder, 'program'), ...program);
  const archive = join(folder, 'archive.tar.gz');
  execFileSync('tar', ['-czf', archive, '-C', folder, 'program']);
  return archive;
}

describe('an installation in a folder of its own', () => {
  const installed = () => {
    const folder = temporaryFolder();
    writeProgram(join(folder, 'versions/1.0.0'), '1.0.0');
    symlinkSync('versions/1.0.0', join(folder, 'current'));
    const place = { kind: 'folder', folder, node: process.execPath } as const;
    return { folder, installation: new FolderInstallation(place, diskFiles, thisHost().run) };
  };

  it('stages a version beside the present one, switches to it and back, and keeps only these', async () => {
    const { folder, installation } = installed();
    for (const version of ['2.0.0', '3.0.0']) await installation.stage(version, archiveOf(version));
    expect([await installation.installed(), readdirSync(join(folder, 'versions')).toSorted()]).toEqual([
      '1.0.0',
      ['1.0.0', '3.0.0'],
    ]);
    await installation.provideWatcher(join(folder, 'watcher'));
    for (const version of ['3.0.0', '3.0.0', '1.0.0', '3.0.0']) {
      await installation.switchTo(version);
      expect(execFileSync(process.execPath, [installation.paths.cli], { encoding: 'utf8' })).toBe(`${version}\n`);
    }
    expect(readlinkSync(join(folder, 'watcher'))).toBe(join(folder, 'versions/1.0.0'));
  });

  it.each([
    ['contains another version', archiveOf.bind(null, '1.9.0'), /contains another one: 1\.9\.0/],
    ['does not start', archiveOf.bind(null, '2.0.0', 'Illegal instruction'), /does not start: it says "Illegal/],
  ])('refuses a file that %s, and stays as it was', async (_, archive, problem) => {
    const { folder, installation } = installed();
    await expect(installation.stage('2.0.0', archive())).rejects.toThrow(problem);
    await expect(installation.switchTo('2.0.0')).rejects.toThrow('ENOENT');
    expect(readlinkSync(join(folder, 'current'))).toBe('versions/1.0.0');
  });
});

it('the way in which a program was installed follows from its path; checkouts have no updates', () => {
  const kindOf = (folder: string) => placeOf({ node: '/usr/bin/node', cli: `${folder}/dist/cli.js` }).kind;
  expect(kindOf('/opt/device-agent/current')).toBe('folder');
  expect(kindOf('/usr/lib/device-agent')).toBe('deb');
  expect(kindOf('/usr/local/lib/node_modules/device-agent')).toBe('npm');
  for (const folder of ['/home/pi/device-agent', '/app', '/home/pi/shop/node_modules/device-agent']) {
    expect(() => kindOf(folder), folder).toThrow(/update not supported.*docs\/updates\.md/);
  }
});
