import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { link, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../errors.ts';

/** The steps of a durable write; a test simulates a power cut between any two of them. */
export interface FileOperations {
  read(path: string): Promise<string>;
  /** Creates or truncates a file, sets its mode and writes the text, without a sync. */
  write(path: string, text: string, mode: number): Promise<void>;
  /** Flushes a file's content to the disk. */
  sync(path: string): Promise<void>;
  /** Creates a hard link; fails with `EEXIST` when the name exists. */
  link(existing: string, name: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  /** Flushes a folder's entries to the disk. */
  syncFolder(folder: string): Promise<void>;
}

export const nodeFiles: FileOperations = {
  read: (path) => readFile(path, 'utf8'),
  write: async (path, text, mode) => {
    await withHandle(await open(path, 'w', mode), async (file) => {
      // An interrupted write may have left the file with other permissions.
      await file.chmod(mode);
      await file.writeFile(text);
    });
  },
  sync: async (path) => {
    await withHandle(await open(path, 'r+'), (file) => file.sync());
  },
  link,
  rename,
  remove: (path) => rm(path, { force: true }),
  list: (folder) => readdir(folder),
  syncFolder: async (folder) => {
    await withHandle(await open(folder, 'r'), async (handle) => {
      await handle.sync().catch((error: unknown) => {
        if (!isUnsyncable(error)) throw error;
      });
    });
  },
};

/**
 * Replaces a file atomically: after a power cut it has either its old or its new content. Concurrent calls for the same
 * file are not supported.
 *
 * @param mode permission bits of the file, for example 0o600
 * @throws {OperatorError} when the disk rejects the write; other errors are bugs
 */
export async function writeDurably(path: string, text: string, mode: number, files = nodeFiles): Promise<void> {
  try {
    const temporary = await stage(path, text, mode, files);
    await files.rename(temporary, path);
    await files.syncFolder(dirname(path));
  } catch (error) {
    throw explainUnwritable(path, error);
  }
}

/**
 * Creates a file that gets its name only when it is complete and flushed. Concurrent calls are safe: one succeeds.
 *
 * @param mode permission bits of the file, for example 0o600
 * @throws the system's error; `EEXIST` when the file exists
 */
export function createDurablySync(path: string, content: string | Buffer, mode: number): void {
  const temporary = `${temporaryNameOf(path)}-${randomBytes(4).toString('hex')}`;
  try {
    withDescriptor(openSync(temporary, 'wx', mode), (descriptor) => {
      writeFileSync(descriptor, content);
      fsyncSync(descriptor);
    });
    linkSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
  withDescriptor(openSync(dirname(path), 'r'), (descriptor) => {
    try {
      fsyncSync(descriptor);
    } catch (error) {
      if (!isUnsyncable(error)) throw error;
    }
  });
}

const DENIED =
  'permission denied: the user that runs this program needs to own it (chown) and to have write permission (chmod u+w)';

/** Advice for the operator by error code. */
const ADVICE: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full: free some space (df -h and df -i show the usage)',
  EDQUOT: "the user's disk quota is full: free some space or raise it",
  EROFS:
    'the file system is read-only, often due to a failing card: check dmesg and the card, ' +
    'then remount it with mount -o remount,rw',
  EACCES: DENIED,
  EPERM: DENIED,
  EIO: 'the disk is failing: check dmesg and replace the card',
};

/** Advice about an unwritable file or folder; null when the disk is not the cause. */
export function diskAdvice(error: unknown): string | null {
  const code = Object.keys(ADVICE).find((known) => hasErrno(error, known));
  return code === undefined ? null : (ADVICE[code] ?? null);
}

/** Appends advice to a message when the disk is the cause. */
export function withDiskAdvice(problem: string, error: unknown): string {
  const advice = diskAdvice(error);
  return advice === null ? problem : `${problem}; ${advice}`;
}

/** Returns an OperatorError with advice when the disk is the cause, or else the error itself. */
export function explainUnwritable(path: string, error: unknown): unknown {
  const advice = diskAdvice(error);
  if (advice === null) return error;
  return new OperatorError(`cannot write ${path} (${messageOf(error)}): ${advice}`, 1, { cause: error });
}

/** Returns an OperatorError with advice about an unreadable file. */
export function explainUnreadable(path: string, error: unknown): OperatorError {
  const isDenied = hasErrno(error, 'EACCES') || hasErrno(error, 'EPERM');
  const advice = isDenied
    ? `run this as its owner, chown it to user ${process.geteuid?.() ?? 'unknown'}, or make it readable with chmod u+r`
    : diskAdvice(error);
  const remedy = advice === null ? '' : `: ${advice}`;
  return new OperatorError(`cannot read ${path} (${messageOf(error)})${remedy}`, 1, { cause: error });
}

/**
 * First half of a durable write: writes and flushes the content under a temporary name.
 *
 * @returns that name; the caller renames it to `path` and syncs the folder
 */
export async function stage(path: string, text: string, mode: number, files: FileOperations): Promise<string> {
  const temporary = temporaryNameOf(path);
  await files.write(temporary, text, mode);
  await files.sync(temporary);
  return temporary;
}

/** The temporary name that {@link stage} uses. */
export function temporaryNameOf(path: string): string {
  return `${path}.tmp`;
}

async function withHandle<T extends { close(): Promise<void> }>(
  handle: T,
  work: (handle: T) => Promise<void>,
): Promise<void> {
  try {
    await work(handle);
  } finally {
    await handle.close();
  }
}

function withDescriptor(descriptor: number, work: (descriptor: number) => void): void {
  try {
    work(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Some file systems, mostly network ones, cannot sync a folder. */
function isUnsyncable(error: unknown): boolean {
  return hasErrno(error, 'EINVAL');
}

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
