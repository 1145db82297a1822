import { mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { hasErrno } from '../errors.ts';

/**
 * Creates a folder and its missing parents. Node's mkdir with `recursive` never returns below /proc, and reports a full
 * disk as ENOENT.
 *
 * @param mode permission bits of each new folder, for example 0o700
 * @throws the system's error
 */
export async function createFolder(path: string, mode: number): Promise<void> {
  const parent = dirname(resolve(path));
  try {
    await createLevel(path, mode);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT') || parent === resolve(path)) throw error;
    await createFolder(parent, mode);
    await createLevel(path, mode);
  }
}

async function createLevel(path: string, mode: number): Promise<void> {
  await mkdir(path, { mode }).catch((error: unknown) => {
    if (!hasErrno(error, 'EEXIST')) throw error;
  });
}
