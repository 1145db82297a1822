import { execFileSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { thisHost } from '../../src/service/host.ts';
import { FolderInstallation, NpmInstallation } from '../../src/update/installations.ts';
import { placeOf } from '../../src/update/installed-program.ts';
import { diskFiles, type UpdateFiles } from '../../src/update/update-files.ts';
import { PowerCut } from '../support/power-cut-files.ts';
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
    for (const version of ['2.0.0', '3.0.0']) await installation.stage(version, [archiveOf(version)]);
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
    await expect(installation.stage('2.0.0', [archive()])).rejects.toThrow(problem);
    await expect(installation.switchTo('2.0.0')).rejects.toThrow('ENOENT');
    expect(readlinkSync(join(folder, 'current'))).toBe('versions/1.0.0');
  });
});

describe('an installation by npm', () => {
  const says = (cli: string) => execFileSync(process.execPath, [cli], { encoding: 'utf8' }).trim();

  /** The fake npm unpacks the archive, as npm does below a prefix. @param files the steps on the disk */
  const installed = (files: UpdateFiles = diskFiles) => {
    const modules = join(temporaryFolder(), 'lib/node_modules');
    const folder = join(modules, 'device-agent');
    writeProgram(folder, '1.0.0');
    const calls: string[][] = [];
    const run = (command: string, ...args: string[]) => {
      if (!args.includes('install')) return thisHost().run(command, ...args);
      calls.push(args);
      const program = join(args[args.indexOf('--prefix') + 1] ?? '', 'lib/node_modules/device-agent');
      mkdirSync(program, { recursive: true });
      return thisHost().run('tar', '-xzf', args.at(-1) ?? '', '-C', program, '--strip-components=1');
    };
    const place = { kind: 'npm', folder, node: process.execPath } as const;
    return { modules, calls, installation: new NpmInstallation(place, files, run) };
  };
  const versionsIn = (modules: string) => readdirSync(join(modules, '.device-agent-versions')).toSorted();

  it('stages a version beside the present one; both change places, without npm and as often as asked', async () => {
    const { modules, calls, installation } = installed();
    for (const version of ['2.0.0', '3.0.0']) await installation.stage(version, [archiveOf(version)]);
    expect(calls.map((args) => args.includes('--ignore-scripts'))).toEqual([true, true]);
    expect([await installation.installed(), versionsIn(modules)]).toEqual(['1.0.0', ['3.0.0']]);
    for (const version of ['3.0.0', '3.0.0', '1.0.0', '3.0.0']) {
      await installation.switchTo(version);
      expect(says(installation.paths.cli)).toBe(version);
    }
    expect([calls.length, versionsIn(modules)]).toEqual([2, ['1.0.0']]);
    // The version before stays until the next one is complete.
    await expect(installation.stage('4.0.0', [archiveOf('4.0.0', 'Illegal instruction')])).rejects.toThrow(/not start/);
    expect(versionsIn(modules)).toEqual(['1.0.0']);
  });

  it('a switch that ends at any step is completed by the next one', async () => {
    let left = Number.POSITIVE_INFINITY;
    const step = <A extends unknown[], R>(operation: (...args: A) => Promise<R>) => {
      return async (...args: A) => {
        if (left-- <= 0) throw new PowerCut();
        return operation(...args);
      };
    };
    const files: UpdateFiles = {
      ...diskFiles,
      ...{ read: step(diskFiles.read), rename: step(diskFiles.rename), syncFolder: step(diskFiles.syncFolder) },
    };
    const { modules, installation } = installed(files);
    await installation.stage('2.0.0', [archiveOf('2.0.0')]);
    const without: number[] = [];
    for (const [version, steps] of ['2.0.0', '1.0.0'].flatMap((each) =>
      [0, 1, 2, 3, 4, 5].map((at) => [each, at] as const),
    )) {
      left = steps;
      await expect(installation.switchTo(version)).rejects.toThrow(PowerCut);
      left = Number.POSITIVE_INFINITY;
      if (!existsSync(installation.paths.cli)) without.push(steps);
      await installation.switchTo(version);
      expect(says(installation.paths.cli)).toBe(version);
      expect(versionsIn(modules)).toHaveLength(1);
      await installation.switchTo(version === '2.0.0' ? '1.0.0' : '2.0.0');
    }
    // Only between the two renames.
    expect(without).toEqual([3, 3]);
  });

  it('its watcher runs from a copy, and replaces the one of the update before', async () => {
    const { modules, installation } = installed();
    mkdirSync(join(modules, 'device-agent/defaults'));
    const link = join(modules, 'watcher');
    mkdirSync(`${link}-0.9.0`);
    await installation.provideWatcher(link);
    rmSync(join(modules, 'device-agent'), { recursive: true });
    expect(says(join(link, 'dist/cli.js'))).toBe('1.0.0');
    expect(readdirSync(modules).filter((name) => name.startsWith('watcher-'))).toEqual(['watcher-1.0.0']);
  });
});

describe('the way in which a program was installed', () => {
  const kindOf = (folder: string) => placeOf({ node: '/usr/bin/node', cli: `${folder}/dist/cli.js` }).kind;

  it('follows from its path; checkouts and projects have no updates', () => {
    expect(kindOf('/opt/device-agent/current')).toBe('folder');
    expect(kindOf('/usr/lib/device-agent')).toBe('deb');
    for (const prefix of ['/usr', '/usr/local', '/opt/nodejs', '/usr/local/lib/nodejs/node-v24.1.0-linux-arm64']) {
      expect(kindOf(`${prefix}/lib/node_modules/device-agent`), prefix).toBe('npm');
    }
    for (const folder of ['/nowhere/device-agent', '/app', '/nowhere/shop/node_modules/device-agent']) {
      expect(() => kindOf(folder), folder).toThrow(/update not supported.*docs\/updates\.md/);
    }
  });

  it('a project in a folder called lib is none of npm’s global folders', () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'lib'));
    writeFileSync(join(folder, 'lib/package.json'), '{}');
    expect(() => kindOf(join(folder, 'lib/node_modules/device-agent'))).toThrow(/install it with npm install --global/);
  });

  it('has no updates below a folder that another user can change, such as that of nvm', () => {
    const folder = temporaryFolder();
    if (process.geteuid?.() === 0) chownSync(folder, 1000, 1000);
    expect(() => kindOf(join(folder, 'lib/node_modules/device-agent'))).toThrow(
      `other users than root can change ${folder}; install Node.js and device-agent as root`,
    );
  });
});
