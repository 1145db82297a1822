import { basename, dirname, join } from 'node:path';
import type { Adapter } from 'lowdb';
import {
  diskAdvice,
  type FileOperations,
  nodeFiles,
  stage,
  temporaryNameOf,
  withDiskAdvice,
} from '../../lib/durable-write.ts';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';

/** How the data of a file is written as text. */
export interface Codec<T> {
  encode(data: T): string;
  /**
   * @param leaveOut hears of each part of a sound text that cannot be used, and what is wrong with it
   * @throws {OperatorError} when the text is sound but nothing that this program may touch
   * @throws anything else when the text is damaged
   */
  decode(text: string, leaveOut: (reason: string) => void): T;
}

export interface DurableFileOptions<T> {
  path: string;
  codec: Codec<T>;
  log: Log;
  files?: FileOperations;
}

type Found<T> =
  | { state: 'good'; text: string; data: T; leftOut: readonly string[] }
  | { state: 'missing' }
  | { state: 'damaged'; reason: string };

const MODE = 0o600;
/** Between a damaged file's name and when it was set aside. */
const DAMAGED = '.damaged-';
/** Damaged files that are kept; the oldest go first. */
const MAX_DAMAGED = 5;

/**
 * A lowdb adapter that survives a power cut at any instant: under the file's name there is always either
 * the old or the new content, complete, and write() resolves only when the new one is on the disk. The
 * content before the last write stays beside it as `.bak`, for when the disk itself damages the file.
 */
export class DurableFile<T> implements Adapter<T> {
  /** Text that is known to be on the disk; null when there is none or a failure left that open. */
  #onDisk: string | null = null;
  /** Whether a sound file is under the name, so that it is worth keeping as the last good copy. */
  #exists = false;
  /** What was found under the name while the disk was read-only; to be dealt with before the first write. */
  #unrestored: Exclude<Found<T>, { state: 'good' }> | null = null;

  constructor(private readonly options: DurableFileOptions<T>) {}

  /**
   * Reads the file or, when it is damaged or missing, the last good copy. A damaged file is set aside, and so is a copy of
   * one of which a part cannot be used.
   *
   * @returns null when there is nothing to read
   * @throws {OperatorError} when a file may not be read or is of a newer version
   */
  async read(): Promise<T | null> {
    const { path } = this.options;
    const main = await this.#load(path);
    if (main.state === 'good') {
      this.#exists = true;
      this.#onDisk = main.text;
      if (main.leftOut.length > 0) await this.#leaveOut(main.data, main.leftOut.join('; '));
      return main.data;
    }
    try {
      return await this.#recover(main);
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      // A disk that takes no writes, whatever the reason, is none to lose the tunnels for.
      const copy = diskAdvice(error) === null ? main : await this.#load(this.#backupPath);
      if (copy.state !== 'good') throw unrestorable(path, error);
      this.#unrestored = main;
      this.options.log.error({ err: error, file: path }, 'using the last good copy; it could not be restored');
      return copy.data;
    }
  }

  /** Resolves when the data is on the disk; writes nothing when it is there already. */
  async write(data: T): Promise<void> {
    const text = this.options.codec.encode(data);
    if (text === this.#onDisk) return;
    if (this.#unrestored) await this.#recover(this.#unrestored);
    this.#unrestored = null;
    const { path } = this.options;
    let renamed = false;
    try {
      const temporary = await stage(path, text, MODE, this.#files);
      if (this.#exists) await this.#keepBackup();
      await this.#files.rename(temporary, path);
      renamed = true;
      await this.#files.syncFolder(dirname(path));
    } catch (error) {
      await this.#undo(renamed);
      throw error;
    }
    this.#exists = true;
    this.#onDisk = text;
  }

  get #files(): FileOperations {
    return this.options.files ?? nodeFiles;
  }

  get #backupPath(): string {
    return backupOf(this.options.path);
  }

  async #load(path: string): Promise<Found<T>> {
    let text: string;
    try {
      text = await this.#files.read(path);
    } catch (error) {
      if (hasErrno(error, 'ENOENT')) return { state: 'missing' };
      // A bad sector is damage like any other; what the operator can mend stops the start instead.
      if (hasErrno(error, 'EIO')) return { state: 'damaged', reason: messageOf(error) };
      throw new OperatorError(
        `${path} cannot be read: ${messageOf(error)}; make it readable for the user that runs the agent, ` +
          'for without it the tunnels would be lost',
        1,
        { cause: error },
      );
    }
    try {
      const leftOut: string[] = [];
      const data = this.options.codec.decode(text, (reason) => leftOut.push(reason));
      return { state: 'good', text, data, leftOut };
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      return { state: 'damaged', reason: messageOf(error) };
    }
  }

  async #recover(main: Exclude<Found<T>, { state: 'good' }>): Promise<T | null> {
    const { path, log } = this.options;
    const backup = await this.#load(this.#backupPath);
    if (backup.state === 'good') await this.#restore(main, backup.text);
    else if (main.state === 'damaged') await this.#discard(path, main.reason);
    if (backup.state === 'damaged') await this.#discard(this.#backupPath, backup.reason);
    if (backup.state !== 'good') return null;
    const reason = main.state === 'damaged' ? main.reason : 'it is missing';
    log.error({ file: path, reason }, 'file missing or damaged; last good copy restored');
    return backup.data;
  }

  /** Writes the file anew without what cannot be used of it; what it was stays under another name. */
  async #leaveOut(data: T, reason: string): Promise<void> {
    const { path, log } = this.options;
    try {
      await this.#setAside(path, reason);
      await this.write(data);
    } catch (err) {
      log.error({ err, file: path, reason }, 'unusable part of the file dropped; no copy could be kept');
    }
  }

  /** Gives the present content the backup's name, without an instant in which either name is missing. */
  async #keepBackup(): Promise<void> {
    const { path, log } = this.options;
    const next = temporaryNameOf(this.#backupPath);
    await this.#files.remove(next);
    try {
      await this.#files.link(path, next);
    } catch (error) {
      if (!hasErrno(error, 'ENOENT')) throw error;
      // What is being written has everything that was in it.
      log.warn({ file: path }, 'file missing; writing it again');
      this.#exists = false;
      return;
    }
    await this.#files.rename(next, this.#backupPath);
  }

  /**
   * After a failed write the old content has to count again, in memory and on disk. Before the renaming
   * it never stopped to; after it, the copy goes back. Should that fail as well, the next write brings order.
   */
  async #undo(renamed: boolean): Promise<void> {
    const { path, log } = this.options;
    const temporary = temporaryNameOf(path);
    try {
      if (renamed && this.#exists) {
        await this.#files.remove(temporary);
        await this.#files.link(this.#backupPath, temporary);
        await this.#files.rename(temporary, path);
        await this.#files.syncFolder(dirname(path));
      } else {
        // The space may be what is missing.
        await this.#files.remove(renamed ? path : temporary);
      }
    } catch (err) {
      if (renamed) this.#onDisk = null;
      log.error({ err, file: path }, 'failed write could not be undone');
    }
  }

  /** Puts the last good copy under the file's name; a damaged file gets another name first. */
  async #restore(main: Found<T>, text: string): Promise<void> {
    const { path } = this.options;
    const temporary = await stage(path, text, MODE, this.#files);
    if (main.state === 'damaged') await this.#setAside(path, main.reason);
    await this.#files.rename(temporary, path);
    await this.#files.syncFolder(dirname(path));
    this.#exists = true;
    this.#onDisk = text;
  }

  async #discard(path: string, reason: string): Promise<void> {
    await this.#setAside(path, reason);
    await this.#files.remove(path);
    await this.#files.syncFolder(dirname(path));
  }

  /** Gives a damaged file a second name that nothing overwrites. */
  async #setAside(path: string, reason: string): Promise<void> {
    const stamp = new Date().toISOString().replaceAll(/[-:.]/g, '');
    for (let attempt = 0; ; attempt++) {
      // A device whose clock starts at 1970 may well meet the same instant again.
      const name = `${path}${DAMAGED}${stamp}${attempt === 0 ? '' : `-${attempt}`}`;
      try {
        await this.#files.link(path, name);
        this.options.log.error({ file: path, reason, kept: name }, 'damaged file set aside');
        break;
      } catch (error) {
        if (!hasErrno(error, 'EEXIST') || attempt === MAX_DAMAGED) throw error;
      }
    }
    await this.#dropOldestDamaged(path);
  }

  async #dropOldestDamaged(path: string): Promise<void> {
    const folder = dirname(path);
    const names = damagedIn(await this.#files.list(folder), path).toSorted();
    for (const name of names.slice(0, -MAX_DAMAGED)) await this.#files.remove(join(folder, name));
  }
}

/** Where the content before the last write is. */
export function backupOf(path: string): string {
  return `${path}.bak`;
}

/** Of the names in the file's folder those of damaged files that were set aside. */
export function damagedIn(names: readonly string[], path: string): string[] {
  return names.filter((name) => name.startsWith(`${basename(path)}${DAMAGED}`));
}

function unrestorable(path: string, cause: unknown): OperatorError {
  const problem = `${path} cannot be restored from its last good copy: ${messageOf(cause)}`;
  return new OperatorError(withDiskAdvice(problem, cause), 1, { cause });
}
