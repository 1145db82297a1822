import { randomBytes } from 'node:crypto';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { systemClock } from '../../lib/clock.ts';
import { createFolder } from '../../lib/create-folder.ts';
import { diskAdvice } from '../../lib/durable-write.ts';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { MAX_SOCKET_PATH } from '../../lib/unix-socket.ts';
import { LockSocket, probe } from './lock-socket.ts';
import { openPrivateFolder, runtimePath } from './runtime-folder.ts';

/** A data folder that belongs to this process until it is released. */
export interface DataFolder {
  /** Why nothing could be written to it, so that the lock is elsewhere, and what to do about it; null when all is well. */
  unwritable: string | null;
  release(): Promise<void>;
}

const LOCK_FOLDER = 'lock';
const SUFFIX = '.sock';
/** While its socket has this suffix a contender does not count yet. */
const PREPARING = '.new';
/** Two that start at the same instant settle it within a few looks at each other. */
const MAX_ROUNDS = 100;
const ROUND_MS = 20;

/**
 * Creates the data folder (mode 0700) and takes it for this process, so that a second agent on it refuses.
 *
 * The lock is a socket in the folder: only the kernel can end it, and does so whichever way the process dies;
 * it holds across containers that share the folder; and a reused process id means nothing to it. Each contender
 * listens on a socket of its own, and only then looks for others. Names are never used twice, so that removing
 * a dead one is always safe. Of two that find each other contending, the one whose name sorts first goes on.
 *
 * A folder that has become read-only, as file systems on failing cards do, or is full, is used all the same: a device that
 * can still serve should. Its lock is then among the temporary files, which tells agents of this machine apart.
 *
 * @throws {OperatorError} when another agent has the folder, or it cannot be used
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const own = join(path, LOCK_FOLDER);
  const substitute = `${runtimePath(path)}-${LOCK_FOLDER}`;
  try {
    try {
      await createFolder(own, 0o700);
      return { unwritable: null, release: await lock(path, own, substitute) };
    } catch (error) {
      const unwritable = await whyUnwritable(error, path, own);
      if (unwritable === null) throw error;
      await openPrivateFolder(substitute);
      return { unwritable, release: await lock(path, substitute, own) };
    }
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(await explain(path, error), 1, { cause: error });
  }
}

/** @returns what to do about a folder that was used before and takes nothing now; null when the error is another one */
async function whyUnwritable(error: unknown, path: string, lockFolder: string): Promise<string | null> {
  const isReadOnly = hasErrno(error, 'EROFS') && (await isFolder(path));
  const isFull = (hasErrno(error, 'ENOSPC') || hasErrno(error, 'EDQUOT')) && (await isFolder(lockFolder));
  return isReadOnly || isFull ? diskAdvice(error) : null;
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false;
}

/**
 * @param folder where the lock is taken
 * @param other where an agent has it that found the data folder writable when this one does not, or the reverse
 * @returns gives it back
 */
async function lock(path: string, folder: string, other: string): Promise<() => Promise<void>> {
  const name = `${randomBytes(6).toString('hex')}${SUFFIX}`;
  const socket = new LockSocket();
  // Under its final name a socket has to answer from the first instant, or it would be taken for a dead one.
  await socket.listen(socketPath(join(folder, name + PREPARING)));
  try {
    await rename(join(folder, name + PREPARING), join(folder, name));
    await outlast(folder, name, path);
    await refuseIfHeld(other, path);
  } catch (error) {
    await rm(join(folder, name), { force: true });
    await socket.close();
    throw error;
  }
  socket.hold();
  await removeAbandoned(folder);
  return async () => {
    await rm(join(folder, name), { force: true }).catch((error: unknown) => {
      // A disk that takes no changes by now: the next agent finds the socket dead, and that is all it takes.
      if (diskAdvice(error) === null) throw error;
    });
    await socket.close();
  };
}

/**
 * Whether an agent has the data folder now.
 *
 * @throws the system's error when this user may not look
 */
export async function isDataFolderHeld(path: string): Promise<boolean> {
  return (await isHeld(join(path, LOCK_FOLDER))) || (await isHeld(`${runtimePath(path)}-${LOCK_FOLDER}`));
}

async function refuseIfHeld(folder: string, path: string): Promise<void> {
  if (await isHeld(folder)) throw inUse(path);
}

async function isHeld(folder: string): Promise<boolean> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (hasErrno(error, 'ENOENT') || hasErrno(error, 'ENOTDIR')) return [];
    throw error;
  });
  for (const name of names) {
    if (!name.endsWith(SUFFIX)) continue;
    if ((await probe(socketPath(join(folder, name)))) === 'held') return true;
  }
  return false;
}

/** Returns when no other process can have the folder or get it before this one. */
async function outlast(folder: string, own: string, path: string): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    let contested = false;
    for (const name of await readdir(folder)) {
      if (name === own || !name.endsWith(SUFFIX)) continue;
      const answer = await probe(socketPath(join(folder, name)));
      if (answer === 'dead') await rm(join(folder, name), { force: true });
      else if (answer === 'leaving' || (answer === 'contending' && own < name)) contested = true;
      else throw inUse(path);
    }
    if (!contested) return;
    await systemClock.sleep(ROUND_MS);
  }
  throw inUse(path);
}

/** Sockets of processes that died before they could contend. */
async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.endsWith(PREPARING)) await rm(join(folder, name), { force: true });
  }
}

/** The shorter spelling of a socket's path. */
function socketPath(absolute: string): string {
  const short = relative(process.cwd(), absolute);
  const path = short.length < absolute.length ? short : absolute;
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH) return path;
  throw new OperatorError(
    `the path of the data folder is too long (a socket in it has at most ${MAX_SOCKET_PATH} bytes)`,
  );
}

function inUse(path: string): OperatorError {
  return new OperatorError(
    `another agent or gateway uses the data folder ${path}; stop it, or give this one its own with DATA_DIR`,
  );
}

async function explain(path: string, error: unknown): Promise<string> {
  // Of the reasons that have advice of their own, only rights are a question of whose the folder is.
  const advice = hasErrno(error, 'EACCES') || hasErrno(error, 'EPERM') ? null : diskAdvice(error);
  if (advice !== null) return `the data folder ${path} cannot be used (${messageOf(error)}): ${advice}`;
  if (hasErrno(error, 'ENOTDIR'))
    return `the data folder ${path} cannot be used (${messageOf(error)}): set DATA_DIR to a folder`;
  const who = `user ${process.geteuid?.() ?? 'unknown'}`;
  const owner = await stat(path).then(
    ({ uid, mode }) => `it belongs to user ${uid}, mode ${(mode & 0o7777).toString(8).padStart(4, '0')}`,
    () => 'it could not be created',
  );
  return (
    `the data folder ${path} cannot be used by ${who}: ${messageOf(error)} (${owner}); ` +
    'give the folder to that user with chown, or set DATA_DIR to another one'
  );
}
