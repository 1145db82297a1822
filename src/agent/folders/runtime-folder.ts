import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { MAX_SOCKET_PATH } from '../../lib/unix-socket.ts';

/** Length of the longest name given to a socket in the folder. */
const LONGEST_NAME = 24;

/**
 * Opens the folder for the sockets of one running agent: short enough a path for a socket, nobody else's,
 * and emptied of what an agent that was killed left behind. Call it while the data folder is locked.
 *
 * @param dataFolder decides the name, so that the next agent on it finds the same folder
 * @param parent where temporary files go
 * @returns the folder's path
 * @throws {OperatorError} when the folder is someone else's or its path is too long for sockets
 */
export async function openRuntimeFolder(dataFolder: string, parent = tmpdir()): Promise<string> {
  const path = runtimePath(dataFolder, parent);
  await openPrivateFolder(path);
  for (const name of await readdir(path)) await rm(join(path, name), { recursive: true, force: true });
  return path;
}

/** Where the runtime folder of a data folder is; the same for every agent on it. */
export function runtimePath(dataFolder: string, parent = tmpdir()): string {
  const digest = createHash('sha256').update(resolve(dataFolder)).digest('hex').slice(0, 12);
  return join(parent, `device-agent-${process.geteuid?.() ?? 0}-${digest}`);
}

/**
 * Makes a folder for sockets among everybody's temporary files, or uses the one that is there.
 *
 * @throws {OperatorError} when it is someone else's or its path is too long for sockets
 */
export async function openPrivateFolder(path: string): Promise<void> {
  if (Buffer.byteLength(path) + 1 + LONGEST_NAME > MAX_SOCKET_PATH) {
    throw new OperatorError(`${path} is too long for sockets; set TMPDIR to a folder with a shorter path`);
  }
  await mkdir(path, { mode: 0o700 }).catch((error: unknown) => {
    if (!hasErrno(error, 'EEXIST'))
      throw new OperatorError(
        `${path} cannot be created (${messageOf(error)}); set TMPDIR to a folder in which this user may write`,
        1,
        { cause: error },
      );
  });
  // Others may write to the folder for temporary files: what stands there has to be ours alone.
  const found = await lstat(path);
  if (!found.isDirectory() || found.uid !== process.geteuid?.() || (found.mode & 0o777) !== 0o700) {
    throw new OperatorError(`${path} is not a folder of this user alone (mode 0700); remove it and start again`);
  }
}
