import { constants } from 'node:fs';
import { access, lstat, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { hasErrno, messageOf } from '../lib/errors.ts';
import { foreignData, OTHER_FOLDER } from '../lib/files/data-folder.ts';
import { diskSpace, FREE_SPACE } from '../lib/files/disk-space.ts';
import { diskAdvice } from '../lib/files/durable-write.ts';
import { dataIn } from '../lib/files/own-data.ts';
import { type Check, failed, ok, type Result } from './finding.ts';

const OTHERS_MAY_WRITE = 0o022;

export function dataFolderCheck(path: string): Check {
  return { name: 'data-folder', title: 'Data folder', run: () => inspect(path) };
}

/** Why changes cannot be saved in the folder, or soon cannot; null when they can, or this user may not tell. */
export async function diskProblem(path: string): Promise<Result | null> {
  const found = await stat(path).catch(() => null); // missing, or in the folder of another user
  if (!found || ownership(path, found) !== null) return null;
  return (await unwritable(path)) ?? (await spaceOn(path)).problem;
}

async function inspect(path: string): Promise<Result | Result[]> {
  const found = await stat(path).catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  });
  if (!found) return inspectMissing(path);
  if (!found.isDirectory()) return failed(`${path} is not a folder`, 'move it away, or set DATA_DIR to a folder');
  const owner = ownership(path, found);
  if (owner) return owner;
  if (dataIn(path) === 'foreign') return failed(foreignData(path), OTHER_FOLDER);
  const problems = [
    (found.mode & OTHERS_MAY_WRITE) === 0
      ? null
      : failed(`other users can write to ${path} (mode ${octal(found.mode)})`, `chmod 700 ${path}`),
    await foreignFile(path, found.uid),
    await unwritable(path),
  ].filter((problem) => problem !== null);
  const room = await spaceOn(path);
  if (room.problem) problems.push(room.problem);
  return problems.length > 0 ? problems : ok(`${path}, mode ${octal(found.mode)}, ${room.shown} free`);
}

async function inspectMissing(path: string): Promise<Result> {
  const parent = await nearestFolder(dirname(path));
  try {
    await access(parent, constants.W_OK | constants.X_OK);
    return ok(`${path} will be created at the first start`);
  } catch (error) {
    return failed(
      `${path} is missing and cannot be created: ${messageOf(error)}`,
      'create it for the user that runs this program, or set DATA_DIR',
    );
  }
}

async function nearestFolder(path: string): Promise<string> {
  try {
    await stat(path);
    return path;
  } catch (error) {
    if (!hasErrno(error, 'ENOENT') || dirname(path) === path) throw error;
    return nearestFolder(dirname(path));
  }
}

function ownership(path: string, { uid }: { uid: number }): Result | null {
  const user = process.geteuid?.() ?? 0;
  // root may check the folder of any user.
  if (user === 0 || user === uid) return null;
  return failed(
    `${path} belongs to user ${uid}, not to this user (${user})`,
    `run this as user ${uid}, or change the owner: sudo chown -R ${user} ${path}`,
  );
}

/** Finds a file of another user, which an agent leaves when it was started with sudo, for example. */
async function foreignFile(path: string, owner: number): Promise<Result | null> {
  for (const folder of [path, join(path, 'gateway')]) {
    for (const name of await namesIn(folder)) {
      const file = await lstat(join(folder, name)).catch(() => null);
      if (!file || file.uid === owner) continue;
      return failed(
        `${join(folder, name)} belongs to user ${file.uid}, but the folder to user ${owner}`,
        `sudo chown -R ${owner} ${path}`,
      );
    }
  }
  return null;
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (hasErrno(error, 'ENOENT') || hasErrno(error, 'EACCES')) return [];
    throw error;
  }
}

/** Writes a file: permissions alone do not reveal a read-only or failing file system. */
async function unwritable(path: string): Promise<Result | null> {
  const file = join(path, `.doctor-${process.pid}`);
  try {
    await writeFile(file, 'x', { mode: 0o600, flag: 'wx' });
    return null;
  } catch (error) {
    return failed(`cannot write to ${path}: ${messageOf(error)}`, diskAdvice(error));
  } finally {
    await rm(file, { force: true }).catch(() => {}); // on a read-only disk there is nothing to remove
  }
}

async function spaceOn(path: string): Promise<{ shown: string; problem: Result | null }> {
  const { shown, shortage } = await diskSpace(path);
  const problem = shortage === null ? null : failed(`the disk of ${path} is nearly full: ${shortage}`, FREE_SPACE);
  return { shown, problem };
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, '0');
}
