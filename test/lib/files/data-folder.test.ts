import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { build } from 'rolldown';
import { expect, it, onTestFinished } from 'vitest';
import { OperatorError } from '../../../src/lib/errors.ts';
import { type DataFolder, openDataFolder } from '../../../src/lib/files/data-folder.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('the data folder is created with mode 0700 and can be locked again after release', async () => {
  const path = join(temporaryFolder(), 'deep/data');
  const first = await openDataFolder(path);
  expect((await stat(path)).mode & 0o777).toBe(0o700);
  await first.release();
  await (await openDataFolder(path)).release();
  expect(await readdir(join(path, 'lock'))).toEqual([]);
});

it('a folder with files of another program is refused by name, and stays as it is', async () => {
  const path = temporaryFolder();
  await writeFile(join(path, 'tunnels.json'), '{"tunnels": ["A3", "A7"]}');
  await writeFile(join(path, 'orders.csv'), '');
  await expect(openDataFolder(path)).rejects.toThrow(
    /^data folder not used: .* has files of another program \(orders\.csv, tunnels\.json\); set DATA_DIR/,
  );
  expect(await readdir(path)).toEqual(['orders.csv', 'tunnels.json']);
});

it('a folder with hidden files or lost+found only is used, and so is one with tunnels of ours', async () => {
  for (const name of ['.gitkeep', 'lost+found', 'tunnels.json']) {
    const path = temporaryFolder();
    await writeFile(join(path, name), '{"version":1,\n"tunnels":[]}');
    await (await openDataFolder(path)).release();
  }
});

it('git takes nothing of the data folder, also of one that an older version has made', async () => {
  const path = join(temporaryFolder(), 'data');
  for (let start = 0; start < 2; start++) {
    await (await openDataFolder(path)).release();
    expect(await readFile(join(path, '.gitignore'), 'utf8')).toBe('*\n');
    await rm(join(path, '.gitignore'));
  }
});

it('a second agent cannot lock the data folder, and its error says what to do', async () => {
  const path = temporaryFolder();
  const first = await openDataFolder(path);
  await expect(openDataFolder(path)).rejects.toThrow(OperatorError);
  await expect(openDataFolder(path)).rejects.toThrow('DATA_DIR');
  await first.release();
});

it('exactly one of many processes that start at once locks the data folder', async () => {
  for (let round = 0; round < 30; round++) {
    const path = temporaryFolder();
    const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => openDataFolder(path)));
    const winners = outcomes.filter(
      (outcome): outcome is PromiseFulfilledResult<DataFolder> => outcome.status === 'fulfilled',
    );
    expect(winners).toHaveLength(1);
    await winners[0]?.value.release();
  }
});

it('the lock ends when its owner is killed', async () => {
  const path = temporaryFolder();
  const owner = await startOwner(path);
  await expect(openDataFolder(path)).rejects.toThrow('another agent');
  owner.kill('SIGKILL');
  await once(owner, 'exit');
  await (await openDataFolder(path)).release();
});

it('the lock stays while its owner is suspended', async () => {
  const path = temporaryFolder();
  const owner = await startOwner(path);
  owner.kill('SIGSTOP');
  await expect(openDataFolder(path)).rejects.toThrow('another agent');
});

it('the error for an unusable data folder names its user and the remedy', async () => {
  // No user can create files there.
  await expect(openDataFolder('/proc/data')).rejects.toThrow(
    /cannot use the data folder .* as user \d+: .*give the folder.*chown/,
  );
});

it('the error for a file in place of the data folder asks for a folder', async () => {
  const path = join(temporaryFolder(), 'file');
  await writeFile(path, '');
  await expect(openDataFolder(path)).rejects.toThrow(
    /cannot use the data folder .*: ENOTDIR.*; set DATA_DIR to a folder$/,
  );
});

/** A process of its own that holds the lock by the same means. */
async function startOwner(path: string): Promise<ChildProcess> {
  const program = `
    import { openDataFolder } from ${JSON.stringify(resolve('src/lib/files/data-folder.ts'))};
    await openDataFolder(${JSON.stringify(path)});
    process.stdout.write('held');
    setInterval(() => {}, 1_000);
  `;
  const bundle = await build({
    input: 'owner',
    platform: 'node',
    plugins: [
      {
        name: 'owner',
        resolveId: (id) => (id === 'owner' ? id : null),
        load: (id) => (id === 'owner' ? program : null),
      },
    ],
    write: false,
  });
  const owner = spawn(process.execPath, ['--input-type=module', '-e', bundle.output[0].code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void owner.kill('SIGKILL'));
  await once(owner.stdout, 'data');
  return owner;
}
