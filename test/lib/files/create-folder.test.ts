import { stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFolder } from '../../../src/lib/files/durable-write.ts';
import { NO_LINUX, unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('creates every level with the mode, and leaves existing folders unchanged', async () => {
  const folder = temporaryFolder();
  await createFolder(join(folder, 'a/b/c'), 0o700);
  await createFolder(join(folder, 'a/b/c'), 0o755);
  for (const level of ['a', 'a/b', 'a/b/c']) expect((await stat(join(folder, level))).mode & 0o777).toBe(0o700);
});

it('fails on a dangling link', async () => {
  const folder = temporaryFolder();
  await symlink('nowhere/at/all', join(folder, 'link'));
  await expect(createFolder(join(folder, 'link/data'), 0o700)).rejects.toThrow('ENOENT');
});

describe('below /proc', unless(NO_LINUX), () => {
  it('fails instead of recursing endlessly', async () => {
    await expect(createFolder('/proc/none/data', 0o700)).rejects.toThrow('/proc/none');
  });
});
