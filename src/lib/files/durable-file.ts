import { basename, dirname, join } from 'node:path';
import type { Adapter } from 'lowdb';
import { hasErrno, messageOf, OperatorError } from '../errors.ts';
import type { Log } from '../log/log.ts';
import { diskAdvice, type FileOperations, nodeFiles, stage, temporaryNameOf, withDiskAdvice } from './durable-write.ts';

export interface Codec<T> {
  encode(data: T): string;
  /**
   * @param leaveOut called for each part of the text that is damaged or not valid, with the reason
   * @throws {OperatorError} when the text is intact but this program must not change it
   * @throws anything else when nothing of the text is usable
   */
  decode(text: string, leaveOut: (reason: string) => void): T;
  /** Adds what was left out of the file and its copy still has. */
  merge(data: T, copy: T): T;
}

interface Good<T> {
  state: 'good';
  text: string;
  data: T;
  leftOut: readonly string[];
}

type Found<T> = Good<T> | { state: 'missing' } | { state: 'damaged'; reason: string };

const MODE = 0o600;
/** Between the name of a damaged file and the time it was set aside. */
const DAMAGED = '.damaged-';
/** Damaged files to keep; the oldest are deleted first. */
const MAX_DAMAGED = 5;

/**
 * A lowdb adapter that survives a power cut at any instant. The file always has either the complete old or the complete
 * new content. In case the disk itself damages the file, `.bak` beside it has the same content on other blocks: write()
 * resolves only when both are on the disk, so that the copy never brings back what was deleted.
 */
export class DurableFile<T> implements Adapter<T> {
  /** The last text that both files are known to have had; null when neither exists. */
  #text: string | null = null;
  /** Whether a failed write may have left another text. */
  #uncertain = false;
  /** Whether the last write failed: the next one shows whether the disk can be written, even with the same text. */
  #hasFailed = false;
  /** The state of a file that a read-only disk kept from being restored; the first write restores it. */
  #unrestored: Exclude<Found<T>, { state: 'good' }> | null = null;

  constructor(
    private readonly options: {
      path: string;
      codec: Codec<T>;
      log: Log;
      files?: FileOperations;
    },
  ) {}

  /**
   * Reads the file. Takes parts that are damaged or not valid, or all of it, from its copy, and sets the damaged file
   * aside.
   *
   * @returns null when neither exists
   * @throws {OperatorError} when a file is unreadable or of a newer version
   */
  async read(): Promise<T | null> {
    const { path } = this.options;
    const main = await this.#load(path);
    if (main.state === 'good') {
      if (main.leftOut.length > 0) return this.#mend(main);
      this.#text = main.text;
      await this.#renew(main);
      return main.data;
    }
    try {
      return await this.#recover(main);
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      // A disk that accepts no writes is no reason to lose the tunnels.
      const copy = diskAdvice(error) === null ? main : await this.#load(this.#backupPath);
      if (copy.state !== 'good') throw unrestorable(path, error);
      this.#unrestored = main;
      this.options.log.error({ err: error, file: path }, 'using the last good copy; it could not be restored');
      return copy.data;
    }
  }

  /** Resolves when the data is on the disk, twice; writes nothing when it already is. */
  async write(data: T): Promise<void> {
    const text = this.options.codec.encode(data);
    if (text === this.#text && !this.#uncertain && !this.#hasFailed) return;
    if (this.#unrestored) await this.#recover(this.#unrestored);
    this.#unrestored = null;
    try {
      await this.#replace([this.options.path, this.#backupPath], text);
    } catch (error) {
      this.#hasFailed = true;
      await this.#undo();
      throw error;
    }
    this.#hasFailed = false;
    this.#text = text;
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
      // A bad sector counts as damage; errors the operator can fix stop the start instead.
      if (hasErrno(error, 'EIO')) return { state: 'damaged', reason: messageOf(error) };
      throw new OperatorError(
        `cannot read ${path}: ${messageOf(error)}; make it readable for the agent's user, or the tunnels would be lost`,
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
    if (backup.leftOut.length > 0) return this.#mend(backup);
    const reason = main.state === 'damaged' ? main.reason : 'missing';
    log.error({ file: path, reason }, 'file missing or damaged; last good copy restored');
    return backup.data;
  }

  /** Replaces what is damaged or not valid by what the copy has, and keeps the original under another name. */
  async #mend({ data, leftOut }: Good<T>): Promise<T> {
    const { path, log, codec } = this.options;
    const reason = leftOut.join('; ');
    const backup = await this.#load(this.#backupPath);
    const whole = backup.state === 'good' ? codec.merge(data, backup.data) : data;
    // A write that fails must not bring the damaged text back.
    this.#text = codec.encode(whole);
    this.#uncertain = true;
    try {
      await this.#setAside(path, reason);
      if (backup.state === 'damaged') await this.#setAside(this.#backupPath, backup.reason);
      await this.write(whole);
    } catch (err) {
      log.error({ err, file: path, reason }, 'unusable part of the file dropped; no copy could be kept');
    }
    return whole;
  }

  /** Gives both files the present form after a power cut between them, a change by hand, damage, or an upgrade. */
  async #renew({ data, text: found }: Good<T>): Promise<void> {
    const { path, codec } = this.options;
    try {
      const backup = await this.#files.read(this.#backupPath).catch(() => null); // a copy that cannot be read is replaced
      const text = codec.encode(data);
      if (found !== text) await this.#replace([path, this.#backupPath], text);
      else if (backup !== text) await this.#replace([this.#backupPath], text);
      this.#text = text;
    } catch (err) {
      if (diskAdvice(err) === null) throw err;
      this.#uncertain = true;
      this.options.log.error({ err, file: this.#backupPath }, 'copy of the file is out of date');
    }
  }

  /** Gives files in the same folder a new text. All are complete on the disk before the first one gets its name. */
  async #replace(paths: readonly string[], text: string): Promise<void> {
    for (const path of paths) await stage(path, text, MODE, this.#files);
    for (const path of paths) {
      await this.#files.rename(temporaryNameOf(path), path);
      this.#uncertain = true;
    }
    await this.#files.syncFolder(dirname(this.options.path));
    this.#uncertain = false;
  }

  /** Restores the old content after a failed write. If that fails as well, the next write repairs the files. */
  async #undo(): Promise<void> {
    const { path, log } = this.options;
    const both = [path, this.#backupPath];
    try {
      // Frees space in case the disk is full.
      for (const name of both) await this.#files.remove(temporaryNameOf(name));
      if (!this.#uncertain) return;
      if (this.#text !== null) return await this.#replace(both, this.#text);
      for (const name of both) await this.#files.remove(name);
      this.#uncertain = false;
    } catch (err) {
      log.error({ err, file: path }, 'failed write could not be undone');
    }
  }

  /** Replaces the file with its copy; sets a damaged file aside first. */
  async #restore(main: Found<T>, text: string): Promise<void> {
    const { path } = this.options;
    const temporary = await stage(path, text, MODE, this.#files);
    if (main.state === 'damaged') await this.#setAside(path, main.reason);
    await this.#files.rename(temporary, path);
    await this.#files.syncFolder(dirname(path));
    this.#text = text;
  }

  async #discard(path: string, reason: string): Promise<void> {
    await this.#setAside(path, reason);
    await this.#files.remove(path);
    await this.#files.syncFolder(dirname(path));
  }

  /** Links a damaged file under a second name that is never overwritten. */
  async #setAside(path: string, reason: string): Promise<void> {
    const stamp = new Date().toISOString().replaceAll(/[-:.]/g, '');
    for (let attempt = 0; ; attempt++) {
      // A device without a battery-backed clock can reach the same instant twice.
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

export function backupOf(path: string): string {
  return `${path}.bak`;
}

/** Those of the names in the file's folder that are damaged files set aside. */
export function damagedIn(names: readonly string[], path: string): string[] {
  return names.filter((name) => name.startsWith(`${basename(path)}${DAMAGED}`));
}

function unrestorable(path: string, cause: unknown): OperatorError {
  const problem = `cannot restore ${path} from its last good copy: ${messageOf(cause)}`;
  return new OperatorError(withDiskAdvice(problem, cause), 1, { cause });
}
