import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type { FileCall } from './write-trace.ts';

interface Inode {
  /** The content as programs read it. */
  bytes: Buffer;
  /** The synced content. */
  durable: Buffer;
  /** Unsynced changes of the content. */
  pending: Change[];
}

type Change = { offset: number; bytes: Buffer } | { size: number };
/** Names that change together; null removes a name. */
type Naming = [path: string, inode: Inode | null][];

/** The state of a disk after an outage. */
export type Outage =
  /** The process was killed: all of its writes survive. */
  | 'kill'
  /** Only synced data survives. */
  | 'lost'
  /** Any sectors of unsynced content survive; name changes survive in order. */
  | 'torn';

const SECTOR = 512;

/** A disk that replays a program's calls, with outages at any point between them. */
export class TracedDisk {
  readonly #names = new Map<string, Inode>();
  readonly #durableNames = new Map<string, Inode>();
  #namings: Naming[] = [];
  readonly #open = new Map<number, { inode: Inode | null; path: string; position: number }>();

  /** @param folder other paths are ignored */
  constructor(private readonly folder: string) {}

  /** Replays one call; returns whether it was for this disk. */
  apply(call: FileCall): boolean {
    switch (call.call) {
      case 'open':
        return this.#openFile(call);
      case 'link':
      case 'rename':
        return this.#name(call.call, call.from, call.to);
      case 'remove':
        return this.#change([[call.path, null]]);
      default:
        return this.#use(call);
    }
  }

  /** Writes the files after an outage to a folder that replaces this disk. */
  restore(outage: Outage, target: string, random: () => number): void {
    for (const [path, inode] of this.#namesAfter(outage, random)) {
      const file = join(target, relative(this.folder, path));
      mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
      writeFileSync(file, contentAfter(inode, outage, random), { mode: 0o600 });
    }
  }

  #openFile({ path, fd, create, truncate }: Extract<FileCall, { call: 'open' }>): boolean {
    if (!this.#isHere(path)) {
      this.#open.delete(fd);
      return false;
    }
    let inode = this.#names.get(path) ?? null;
    if (inode === null && create) {
      inode = { bytes: Buffer.alloc(0), durable: Buffer.alloc(0), pending: [] };
      this.#change([[path, inode]]);
    }
    if (truncate && inode) alter(inode, { size: 0 });
    this.#open.set(fd, { inode, path, position: 0 });
    return create;
  }

  #use(call: Extract<FileCall, { call: 'write' | 'truncate' | 'sync' }>): boolean {
    const file = this.#open.get(call.fd);
    if (!file) return false;
    if (call.call === 'sync') {
      if (file.inode) settle(file.inode);
      else this.#syncFolder(file.path);
    } else if (file.inode && call.call === 'truncate') {
      alter(file.inode, { size: call.size });
    } else if (file.inode && call.call === 'write') {
      alter(file.inode, { offset: call.offset ?? file.position, bytes: call.bytes });
      if (call.offset === null) file.position += call.bytes.length;
    }
    return true;
  }

  #name(call: 'link' | 'rename', from: string, to: string): boolean {
    const inode = this.#names.get(from);
    if (!inode) return false;
    return this.#change(
      call === 'link'
        ? [[to, inode]]
        : [
            [to, inode],
            [from, null],
          ],
    );
  }

  #change(naming: Naming): boolean {
    const own = naming.filter(([path]) => this.#isHere(path));
    rename(this.#names, own);
    this.#namings.push(own);
    return own.length > 0;
  }

  #syncFolder(folder: string): void {
    const isThere = (naming: Naming) => naming.some(([path]) => dirname(path) === folder);
    for (const naming of this.#namings.filter(isThere)) rename(this.#durableNames, naming);
    this.#namings = this.#namings.filter((naming) => !isThere(naming));
  }

  #namesAfter(outage: Outage, random: () => number): Map<string, Inode> {
    if (outage === 'kill') return this.#names;
    const names = new Map(this.#durableNames);
    const survived = outage === 'lost' ? 0 : Math.floor(random() * (this.#namings.length + 1));
    for (const naming of this.#namings.slice(0, survived)) rename(names, naming);
    return names;
  }

  #isHere(path: string): boolean {
    return path === this.folder || path.startsWith(`${this.folder}/`);
  }
}

function rename(names: Map<string, Inode>, naming: Naming): void {
  for (const [path, inode] of naming) {
    if (inode) names.set(path, inode);
    else names.delete(path);
  }
}

function alter(inode: Inode, change: Change): void {
  inode.bytes = changed(inode.bytes, change);
  inode.pending.push(change);
}

function settle(inode: Inode): void {
  inode.durable = inode.bytes;
  inode.pending = [];
}

function changed(bytes: Buffer, change: Change): Buffer {
  const size = 'size' in change ? change.size : Math.max(bytes.length, change.offset + change.bytes.length);
  const result = Buffer.alloc(size);
  bytes.copy(result);
  if ('bytes' in change) change.bytes.copy(result, change.offset);
  return result;
}

function contentAfter(inode: Inode, outage: Outage, random: () => number): Buffer {
  if (outage === 'kill') return inode.bytes;
  if (outage === 'lost') return inode.durable;
  const parts = inode.pending.flatMap((change) => ('size' in change ? [change] : sectors(change)));
  return parts.filter(() => random() < 0.5).reduce(changed, inode.durable);
}

/** A write, sector by sector. */
function sectors({ offset, bytes }: { offset: number; bytes: Buffer }): Change[] {
  const parts: Change[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(bytes.length, at + SECTOR - ((offset + at) % SECTOR));
    parts.push({ offset: offset + at, bytes: bytes.subarray(at, end) });
    at = end;
  }
  return parts;
}
