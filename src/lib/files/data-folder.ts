import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join, relative } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../errors.ts';
import { printable } from '../terminal-text.ts';
import { systemClock } from '../time/clock.ts';
import { createFolder, diskAdvice } from './durable-write.ts';
import { dataIn, someNames } from './own-data.ts';
import { MAX_SOCKET_PATH, openPrivateFolder, runtimePath } from './runtime-folder.ts';

/** A data folder that this process holds until it releases it. */
export interface DataFolder {
  /** Why the folder is not writable and what to do about it; null when it is. The lock is then in the temporary folder. */
  unwritable: string | null;
  release(): Promise<void>;
}

const LOCK_FOLDER = 'lock';
const SUFFIX = '.sock';
/** Sockets with this suffix do not compete for the lock yet. */
const PREPARING = '.new';
/** Processes that start at the same instant need a few rounds to settle. */
const MAX_ROUNDS = 100;
const ROUND_MS = 20;

/**
 * Creates the data folder (mode 0700) and locks it for this process.
 *
 * The lock is a socket in the folder. The kernel ends it however the process dies, it works across containers that share
 * the folder, and reused process ids do not matter. Each contender listens on its own socket before it looks for
 * others. Names are never reused, so removing dead sockets is always safe. Of two contenders, the name that sorts first
 * wins.
 *
 * A folder that is full or has become read-only, as on failing cards, is used all the same, so that the tunnels keep
 * running. Its lock is then in the temporary folder, which still separates the agents of one machine.
 *
 * @throws {OperatorError} when another process holds the folder, it has files of another program, or it cannot be used
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const own = join(path, LOCK_FOLDER);
  const substitute = `${runtimePath(path)}-${LOCK_FOLDER}`;
  if (dataIn(path) === 'foreign') {
    throw new OperatorError(`data folder not used: ${foreignData(path)}; ${OTHER_FOLDER}`, 2);
  }
  try {
    try {
      await createFolder(own, 0o700);
      await hideFromGit(path);
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

/** What to do about a folder with {@link foreignData}. */
export const OTHER_FOLDER = 'set DATA_DIR, or DEVICE_AGENT_DATA_DIR in .env, to a new or empty folder';

/** Why a folder is not used: files in it could be taken for ours, and replaced. */
export function foreignData(path: string): string {
  return `${path} has files of another program (${printable(someNames(path))})`;
}

/** In the folder of a project, git would otherwise take the keys. A disk that takes no more files says so elsewhere. */
async function hideFromGit(path: string): Promise<void> {
  await writeFile(join(path, '.gitignore'), '*\n', { flag: 'wx', mode: 0o600 }).catch((error: unknown) => {
    if (!hasErrno(error, 'EEXIST') && diskAdvice(error) === null) throw error;
  });
}

/** @returns the advice for a folder that was writable before and is not now; null for other errors */
async function whyUnwritable(error: unknown, path: string, lockFolder: string): Promise<string | null> {
  const isReadOnly = hasErrno(error, 'EROFS') && (await isFolder(path));
  const isFull = (hasErrno(error, 'ENOSPC') || hasErrno(error, 'EDQUOT')) && (await isFolder(lockFolder));
  return isReadOnly || isFull ? diskAdvice(error) : null;
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false;
}

/** @param other checked, too: another process may have found the data folder writable when this one did not */
async function lock(path: string, folder: string, other: string): Promise<() => Promise<void>> {
  const name = `${randomBytes(6).toString('hex')}${SUFFIX}`;
  const socket = new LockSocket();
  // Renamed only once it listens: under its final name a socket that does not answer counts as dead.
  await socket.listen(socketPath(join(folder, name + PREPARING)));
  try {
    await rename(join(folder, name + PREPARING), join(folder, name));
    await winContest(folder, name, path);
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
      // Not writable by now: the next process finds the socket dead, which is enough.
      if (diskAdvice(error) === null) throw error;
    });
    await socket.close();
  };
}

/** Whether a process holds the data folder; throws the system's error when this user may not read it. */
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
    if ((await askLockOwner(socketPath(join(folder, name)))) === 'held') return true;
  }
  return false;
}

/** Resolves when no other process holds the folder or can get it first. */
async function winContest(folder: string, own: string, path: string): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    let contested = false;
    for (const name of await readdir(folder)) {
      if (name === own || !name.endsWith(SUFFIX)) continue;
      const answer = await askLockOwner(socketPath(join(folder, name)));
      if (answer === 'dead') await rm(join(folder, name), { force: true });
      else if (answer === 'leaving' || (answer === 'contending' && own < name)) contested = true;
      else throw inUse(path);
    }
    if (!contested) return;
    await systemClock.sleep(ROUND_MS);
  }
  throw inUse(path);
}

/** Removes sockets of processes that died before they competed. */
async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.endsWith(PREPARING)) await rm(join(folder, name), { force: true });
  }
}

/** The absolute or relative path of a socket, whichever is shorter. */
function socketPath(absolute: string): string {
  const short = relative(process.cwd(), absolute);
  const path = short.length < absolute.length ? short : absolute;
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH) return path;
  throw new OperatorError(
    `data folder path too long: sockets in it may have at most ${MAX_SOCKET_PATH} bytes; set DATA_DIR to a shorter path`,
  );
}

function inUse(path: string): OperatorError {
  return new OperatorError(
    `data folder in use: another agent or gateway uses ${path}; stop it, or set DATA_DIR to another folder`,
  );
}

async function explain(path: string, error: unknown): Promise<string> {
  // Permission errors are explained by the folder's owner instead.
  const advice = hasErrno(error, 'EACCES') || hasErrno(error, 'EPERM') ? null : diskAdvice(error);
  if (advice !== null) return `cannot use the data folder ${path}: ${messageOf(error)}; ${advice}`;
  if (hasErrno(error, 'ENOTDIR'))
    return `cannot use the data folder ${path}: ${messageOf(error)}; set DATA_DIR to a folder`;
  const user = process.geteuid?.();
  const found = await stat(path).catch(() => null);
  const owner = found
    ? `owned by user ${found.uid}, mode ${(found.mode & 0o7777).toString(8).padStart(4, '0')}`
    : 'it could not be created';
  const remedy =
    found && found.uid === user
      ? `make it writable with chmod u+rwx ${path}`
      : 'give the folder to that user with chown';
  return (
    `cannot use the data folder ${path} as user ${user ?? 'unknown'}: ${messageOf(error)} (${owner}); ` +
    `${remedy}, or set DATA_DIR to another one`
  );
}

/** `leaving`: the owner is closing its socket; ask again. */
type Answer = 'held' | 'contending' | 'leaving' | 'dead';

/** A process that accepts but does not answer within this time counts as holding the lock. */
const ANSWER_MS = 2_000;

/** A socket that answers connections with whether its owner holds a lock or still competes for it. */
class LockSocket {
  #state: 'held' | 'contending' = 'contending';
  readonly #server = net.createServer((client) => {
    client.on('error', () => client.destroy());
    client.end(this.#state);
  });

  /** @throws when the socket cannot be made */
  async listen(path: string): Promise<void> {
    this.#server.listen(path);
    await once(this.#server, 'listening');
    // A contender that cannot connect assumes that the lock is held, which it is.
    this.#server.on('error', () => {});
    // A lock alone must not keep the process alive.
    this.#server.unref();
  }

  hold(): void {
    this.#state = 'held';
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    await closed;
  }
}

/** Asks the owner of a lock socket; one that nobody listens on is dead. */
async function askLockOwner(path: string): Promise<Answer> {
  const client = net.connect(path);
  client.setTimeout(ANSWER_MS, () => client.destroy());
  try {
    let answer = '';
    for await (const chunk of client.setEncoding('utf8')) answer += chunk;
    if (answer === 'held' || answer === 'contending') return answer;
    return 'leaving';
  } catch (error) {
    if (hasErrno(error, 'ECONNREFUSED') || hasErrno(error, 'ENOENT')) return 'dead';
    if (hasErrno(error, 'ECONNRESET')) return 'leaving';
    // For any other error, someone may be listening.
    return 'held';
  }
}
