import { mkdir, readdir, rm } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import type { UpdateFiles } from './update-files.ts';

/** Names of folders with what is not complete yet begin with this. */
const INCOMING = '.incoming-';

/** Versions of the program beside each other in a folder. A version has its name once it is complete, starts, and is durable. */
export class VersionTrees {
  constructor(
    readonly folder: string,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {}

  pathOf(version: string): string {
    return join(this.folder, version);
  }

  /**
   * Adds a version. The others are removed, except those to keep.
   *
   * @param unpack puts the program into an empty folder on the same disk, and returns where it is
   * @param nodeOf path of the Node.js that runs a program
   * @throws {OperatorError} when it is not that version, or does not start
   */
  async add(
    version: string,
    unpack: (folder: string) => Promise<string>,
    nodeOf: (program: string) => string,
    kept: readonly string[],
  ): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o755 });
    for (const name of await readdir(this.folder)) {
      if (name.startsWith(INCOMING)) await rm(join(this.folder, name), { recursive: true, force: true });
    }
    // What a killed attempt has started may still write into its own.
    const incoming = join(this.folder, `${INCOMING}${process.pid}`);
    await mkdir(incoming, { mode: 0o755 });
    try {
      const program = await unpack(incoming);
      await this.#requireVersion(program, version);
      await this.#requireStart(program, version, nodeOf(program));
      await syncAll(program, this.files);
      for (const name of await readdir(this.folder)) {
        const path = join(this.folder, name);
        if (path !== incoming && !kept.includes(name)) await rm(path, { recursive: true, force: true });
      }
      await this.files.rename(program, this.pathOf(version));
      await this.files.syncFolder(this.folder);
    } finally {
      // What is left of an attempt that failed would fill the disk.
      await rm(incoming, { recursive: true, force: true });
    }
  }

  async #requireVersion(program: string, version: string): Promise<void> {
    const found = await versionIn(program, this.files).catch((error: unknown) => messageOf(error));
    if (found !== version) {
      throw new OperatorError(`the file of version ${version} contains another one: ${found}; ask its publisher`);
    }
  }

  /** Before anything is switched: a wrong architecture or a missing file shows here, with the running agent untouched. */
  async #requireStart(program: string, version: string, node: string): Promise<void> {
    const said = (await this.run(node, join(program, 'dist/cli.js'), '--version')).trim();
    // The commit follows the version.
    if (said.split(' ')[0] !== version)
      throw new OperatorError(`version ${version} does not start: it says ${JSON.stringify(said)}`);
  }
}

/** @throws when there is no whole program */
export async function versionIn(program: string, files: UpdateFiles): Promise<string> {
  const { version }: { version?: unknown } = JSON.parse(await files.read(join(program, 'package.json')));
  if (typeof version !== 'string') throw new Error(`${program}/package.json has no version`);
  return version;
}

/** The Node.js of a copy of the program: its own one, if the program brings it. */
export function nodeOfCopy(program: string, node: string, copy: string): string {
  const own = relative(program, node);
  return own.startsWith('..') ? node : join(copy, own);
}

/** Flushes all files of a folder, and their names. */
export async function syncAll(folder: string, files: UpdateFiles): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await syncAll(path, files);
    else if (entry.isFile()) await files.sync(path);
  }
  await files.syncFolder(folder);
}
