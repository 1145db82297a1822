import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { link, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { hasErrno, messageOf, OperatorError } from './errors.ts';

/** The steps that a durable write is made of; a test cuts the power between any two of them. */
export interface FileOperations {
  read(path: string): Promise<string>;
  /** Creates or empties a file, gives it the mode and writes the text; nothing of it is safe yet. */
  write(path: string, text: string, mode: number): Promise<void>;
  /** Brings a file's content to the disk. */
  sync(path: string): Promise<void>;
  /** Gives a file a second name; fails with `EEXIST` when the name is taken. */
  link(existing: string, name: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  remove(path: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  /** Brings the names in a folder to the disk. */
  syncFolder(folder: string): Promise<void>;
}

export const nodeFiles: FileOperations = {
  read: (path) => readFile(path, 'utf8'),
  write: async (path, text, mode) => {
    await withHandle(await open(path, 'w', mode), async (file) => {
      // An earlier, interrupted write may have left the file with other permissions.
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
 * Replaces a file so that after a power cut either the old or the new content is there, complete. To be
 * called for one file by one caller at a time.
 *
 * @param mode permission bits of the file, such as 0o600
 * @throws {OperatorError} when the disk does not take it; anything else is a bug
 */
export async function writeDurably(path: string, text: string, mode: number): Promise<void> {
  try {
    const temporary = await stage(path, text, mode, nodeFiles);
    await nodeFiles.rename(temporary, path);
    await nodeFiles.syncFolder(dirname(path));
  } catch (error) {
    throw explainUnwritable(path, error);
  }
}

/**
 * Makes a file that has its name only once it is complete and on the disk, whoever else makes it at the same time.
 *
 * @param mode permission bits of the file, such as 0o600
 * @throws the system's error; `EEXIST` when the name is taken
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

/** What the operator can do, by the code of the system's error. */
const ADVICE: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full: free some space (df -h and df -i show the usage)',
  EDQUOT: "the user's disk quota is full: free some space or raise it",
  EROFS:
    'the file system is read-only, often because a card fails: check dmesg and the card, ' +
    'then remount it with mount -o remount,rw',
  EACCES: 'permission denied: chown it to the user that runs this program',
  EPERM: 'permission denied: chown it to the user that runs this program',
  EIO: 'the disk is failing: check dmesg and replace the card',
};

/** What to do about a file or folder that cannot be written; null when the error is none of the disk's. */
export function diskAdvice(error: unknown): string | null {
  const code = Object.keys(ADVICE).find((known) => hasErrno(error, known));
  return code === undefined ? null : (ADVICE[code] ?? null);
}

/** What went wrong, with what to do about it when the disk is in the way. */
export function withDiskAdvice(problem: string, error: unknown): string {
  const advice = diskAdvice(error);
  return advice === null ? problem : `${problem}; ${advice}`;
}

/** The error for the operator when the disk is in the way, else the error itself. */
export function explainUnwritable(path: string, error: unknown): unknown {
  const advice = diskAdvice(error);
  if (advice === null) return error;
  return new OperatorError(`cannot write ${path} (${messageOf(error)}): ${advice}`, 1, { cause: error });
}

/** The error for the operator about a file that is there and cannot be read. */
export function explainUnreadable(path: string, error: unknown): OperatorError {
  const isDenied = hasErrno(error, 'EACCES') || hasErrno(error, 'EPERM');
  const advice = isDenied
    ? `run this as its owner, or chown it to user ${process.geteuid?.() ?? 'unknown'}`
    : diskAdvice(error);
  const remedy = advice === null ? '' : `: ${advice}`;
  return new OperatorError(`cannot read ${path} (${messageOf(error)})${remedy}`, 1, { cause: error });
}

/**
 * The first half of a durable write: brings the content to the disk beside the file, under a temporary name.
 *
 * @returns that name; to be renamed to `path`, the folder then synced
 */
export async function stage(path: string, text: string, mode: number, files: FileOperations): Promise<string> {
  const temporary = temporaryNameOf(path);
  await files.write(temporary, text, mode);
  await files.sync(temporary);
  return temporary;
}

/** Where {@link stage} puts what is to become the content of a file. */
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

/** Some file systems (of networks, mostly) cannot sync a folder; renaming is all they offer. */
function isUnsyncable(error: unknown): boolean {
  return hasErrno(error, 'EINVAL');
}
