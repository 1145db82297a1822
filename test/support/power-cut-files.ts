import { basename, dirname, join } from 'node:path';
import type { FileOperations } from '../../src/lib/files/durable-write.ts';

/** Thrown by every operation after the power cut. */
export class PowerCut extends Error {}

/** A file's content: as programs read it, and as synced to the disk. */
interface Inode {
  text: string;
  durable: string;
}

type Names = Map<string, Inode>;

/**
 * A disk that loses everything unsynced. Content survives only after sync(), names only after syncFolder(). Otherwise, a
 * power cut tears content at any place and undoes any number of name changes, the latest first, like a journal.
 */
export class PowerCutFiles implements FileOperations {
  /** Operations until the power cut; the last one may be partly done. */
  operationsLeft = Number.POSITIVE_INFINITY;
  /** When set, operations fail with this error instead of a power cut. */
  failure: { operation: string; code: string } | null = null;
  operations = 0;
  #names: Names;
  #durableNames: Names;
  /** Snapshots of the names after each change since the last syncFolder(). */
  #journal: Names[] = [];

  constructor(
    names: Names = new Map(),
    private readonly random: () => number = Math.random,
  ) {
    this.#names = new Map(names);
    this.#durableNames = new Map(names);
  }

  /** The disk after the power returns. */
  restart(): PowerCutFiles {
    const survived = Math.floor(this.random() * (this.#journal.length + 1));
    const names = survived === 0 ? this.#durableNames : (this.#journal[survived - 1] ?? this.#durableNames);
    const inodes = new Map<Inode, Inode>();
    const found: Names = new Map();
    for (const [path, inode] of names) {
      const known = inodes.get(inode);
      const text = known?.text ?? this.#tornText(inode);
      const after = known ?? { text, durable: text };
      inodes.set(inode, after);
      found.set(path, after);
    }
    return new PowerCutFiles(found, this.random);
  }

  /** Damages a file like a bad sector, unnoticed by the program. */
  damage(path: string, text: string): void {
    this.#names.set(path, { text, durable: text });
    this.#durableNames.set(path, { text, durable: text });
  }

  paths(): string[] {
    return [...this.#names.keys()].toSorted();
  }

  textOf(path: string): string | undefined {
    return this.#names.get(path)?.text;
  }

  async read(path: string): Promise<string> {
    await this.#step('read');
    return this.#inode(path).text;
  }

  async write(path: string, text: string): Promise<void> {
    const inode = this.#names.get(path) ?? { text: '', durable: '' };
    if (!this.#names.has(path)) this.#rename(() => this.#names.set(path, inode));
    inode.text = text.slice(0, Math.floor(this.random() * text.length));
    // Truncation also changes the content: the synced content is no longer certain.
    inode.durable = '';
    await this.#step('write');
    inode.text = text;
  }

  async sync(path: string): Promise<void> {
    await this.#step('sync');
    const inode = this.#inode(path);
    inode.durable = inode.text;
  }

  async link(existing: string, name: string): Promise<void> {
    await this.#step('link');
    if (this.#names.has(name)) throw errno('EEXIST');
    const inode = this.#inode(existing);
    this.#rename(() => this.#names.set(name, inode));
  }

  /** A link's target is part of its name's change, as journals have it. */
  async symlink(target: string, path: string): Promise<void> {
    await this.#step('symlink');
    if (this.#names.has(path)) throw errno('EEXIST');
    this.#rename(() => this.#names.set(path, { text: target, durable: target }));
  }

  async readlink(path: string): Promise<string> {
    return this.read(path);
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#step('rename');
    if (!this.#names.has(from)) return this.#renameFolder(from, to);
    const inode = this.#inode(from);
    // Like the system call: two names of one file stay unchanged.
    if (this.#names.get(to) === inode) return;
    this.#rename(() => {
      this.#names.set(to, inode);
      this.#names.delete(from);
    });
  }

  async remove(path: string): Promise<void> {
    await this.#step('remove');
    this.#rename(() => this.#names.delete(path));
  }

  async list(folder: string): Promise<string[]> {
    await this.#step('list');
    return [...this.#names.keys()].filter((path) => dirname(path) === join(folder)).map((path) => basename(path));
  }

  async syncFolder(): Promise<void> {
    await this.#step('syncFolder');
    this.#durableNames = new Map(this.#names);
    this.#journal = [];
  }

  /** A folder exists as long as names below it do. */
  #renameFolder(from: string, to: string): void {
    const below = (folder: string) => [...this.#names].filter(([path]) => path.startsWith(`${folder}/`));
    if (below(from).length === 0) throw errno('ENOENT');
    if (below(to).length > 0) throw errno('ENOTEMPTY');
    this.#rename(() => {
      for (const [path, inode] of below(from)) {
        this.#names.delete(path);
        this.#names.set(`${to}${path.slice(from.length)}`, inode);
      }
    });
  }

  #rename(change: () => void): void {
    change();
    this.#journal.push(new Map(this.#names));
  }

  #inode(path: string): Inode {
    const inode = this.#names.get(path);
    if (!inode) throw errno('ENOENT');
    return inode;
  }

  #tornText({ text, durable }: Inode): string {
    return text === durable ? text : text.slice(0, Math.floor(this.random() * (text.length + 1)));
  }

  async #step(operation: string): Promise<void> {
    this.operations++;
    if (this.operationsLeft-- <= 0) throw new PowerCut();
    if (this.failure?.operation === operation) throw errno(this.failure.code);
    await Promise.resolve();
  }
}

function errno(code: string): Error {
  return Object.assign(new Error(`${code}: simulated`), { code });
}
