import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../errors.ts';

/** Maximum length of a unix socket's path in bytes: Linux's `sockaddr_un` without the final NUL. */
export const MAX_SOCKET_PATH = 107;

/** Length of the longest name given to a socket in the folder. */
const LONGEST_NAME = 24;

/**
 * Opens the private folder for the sockets of one running agent, and empties it of what a killed agent left. Call this
 * while the data folder is locked.
 *
 * @param dataFolder determines the name, so that the next agent on it finds the same folder
 * @throws {OperatorError} when the folder is not private to this user or its path is too long for sockets
 */
export async function openRuntimeFolder(dataFolder: string, parent = tmpdir()): Promise<string> {
  const path = runtimePath(dataFolder, parent);
  await openPrivateFolder(path);
  for (const name of await readdir(path)) await rm(join(path, name), { recursive: true, force: true });
  return path;
}

/** Path of the runtime folder of a data folder; the same for every agent on it. */
export function runtimePath(dataFolder: string, parent = tmpdir()): string {
  const digest = createHash('sha256').update(resolve(dataFolder)).digest('hex').slice(0, 12);
  return join(parent, `device-agent-${process.geteuid?.() ?? 0}-${digest}`);
}

/**
 * Opens or creates a private folder for sockets in the shared folder for temporary files.
 *
 * @throws {OperatorError} when it is not private to this user or its path is too long for sockets
 */
export async function openPrivateFolder(path: string): Promise<void> {
  if (Buffer.byteLength(path) + 1 + LONGEST_NAME > MAX_SOCKET_PATH) {
    throw new OperatorError(`path too long for sockets: ${path}; set TMPDIR to a folder with a shorter path`);
  }
  await mkdir(path, { mode: 0o700 }).catch((error: unknown) => {
    if (!hasErrno(error, 'EEXIST'))
      throw new OperatorError(
        `cannot create ${path}: ${messageOf(error)}; set TMPDIR to a folder that this user can write`,
        1,
        { cause: error },
      );
  });
  // Others can write to the parent folder, so this one may be theirs.
  const found = await lstat(path);
  if (!found.isDirectory() || found.uid !== process.geteuid?.() || (found.mode & 0o777) !== 0o700) {
    throw new OperatorError(
      `not a private folder: ${path} must belong to this user with mode 0700; remove it and restart`,
    );
  }
}
