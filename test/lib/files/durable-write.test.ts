import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { explainUnreadable, writeDurably } from '../../../src/lib/files/durable-write.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('writeDurably replaces the file with a new one and leaves no temporary file', async () => {
  const folder = temporaryFolder();
  const path = join(folder, 'secret');
  await writeDurably(path, 'old, and longer', 0o600);
  const { ino } = await stat(path);
  await writeDurably(path, 'new', 0o600);
  expect(await readFile(path, 'utf8')).toBe('new');
  expect((await stat(path)).ino).not.toBe(ino);
  expect(await readdir(folder)).toEqual(['secret']);
});

it('writeDurably sets the mode even when an interrupted write left a readable temporary file', async () => {
  const path = join(temporaryFolder(), 'secret');
  await writeFile(`${path}.tmp`, 'half of it', { mode: 0o644 });
  await writeDurably(path, 'whole', 0o600);
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  expect(await readFile(path, 'utf8')).toBe('whole');
});

it('explainUnreadable advises to run as the owner of the file or to change the owner', () => {
  const denied = Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' });
  expect(explainUnreadable('/srv/key', denied).message).toMatch(
    /^cannot read \/srv\/key \(EACCES: permission denied\): run this as its owner, chown it to user \d+, or make it readable with chmod/,
  );
});
