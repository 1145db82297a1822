import { chmod, mkdir, readdir, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openRuntimeFolder } from '../../../src/lib/files/runtime-folder.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('the runtime folder is private, depends only on the data folder, and is emptied on open', async () => {
  const parent = temporaryFolder();
  const path = await openRuntimeFolder('/data', parent);
  expect((await stat(path)).mode & 0o777).toBe(0o700);
  await writeFile(join(path, 'left.sock'), '');
  expect(await openRuntimeFolder('/data', parent)).toBe(path);
  expect(await readdir(path)).toEqual([]);
  expect(await openRuntimeFolder('/other', parent)).not.toBe(path);
});

it('the runtime folder is refused when another user may have created it', async () => {
  const parent = temporaryFolder();
  const path = await openRuntimeFolder('/data', parent);
  await chmod(path, 0o755);
  await expect(openRuntimeFolder('/data', parent)).rejects.toThrow('remove it');
  const elsewhere = temporaryFolder();
  await mkdir(join(elsewhere, 'theirs'), { mode: 0o700 });
  const name = path.slice(parent.length + 1);
  await symlink(join(elsewhere, 'theirs'), join(elsewhere, name));
  await expect(openRuntimeFolder('/data', elsewhere)).rejects.toThrow('remove it');
});

it('the runtime folder is refused when its path is too long for sockets', async () => {
  await expect(openRuntimeFolder('/data', `/tmp/${'a'.repeat(80)}`)).rejects.toThrow('TMPDIR');
});
