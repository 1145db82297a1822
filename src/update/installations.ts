import { existsSync, realpathSync } from 'node:fs';
import { cp, link, mkdir, readdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { hasErrno } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, packagedUnitOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { CURRENT, type InstalledProgram, npmVersions, type Place } from './installed-program.ts';
import { replaceLink, type UpdateFiles } from './update-files.ts';
import { nodeOfCopy, syncAll, VersionTrees, versionIn } from './version-trees.ts';

const VERSIONS = 'versions';

/** @param archives folder in which Debian packages stay */
export function installationAt(place: Place, archives: string, files: UpdateFiles, run: Host['run']): InstalledProgram {
  switch (place.kind) {
    case 'folder':
      return new FolderInstallation(place, files, run);
    case 'npm':
      return new NpmInstallation(place, files, run);
    case 'deb':
      return new DebianInstallation(place, archives, files, run);
  }
}

/** An installation in a folder of its own: `versions/<version>` beside the link `current`, which leads to one of them. */
export class FolderInstallation implements InstalledProgram {
  readonly paths: ProgramPaths;
  readonly #trees: VersionTrees;

  constructor(
    readonly place: Place,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {
    this.paths = { node: place.node, cli: join(place.folder, CURRENT, 'dist/cli.js') };
    this.#trees = new VersionTrees(join(place.folder, VERSIONS), files, run);
  }

  async installed(): Promise<string> {
    return basename(await this.files.readlink(join(this.place.folder, CURRENT)));
  }

  packages(): readonly [null] {
    return [null];
  }

  async stage(version: string, [archive = '']: readonly string[]): Promise<void> {
    const { folder, node } = this.place;
    const unpack = async (incoming: string) => {
      await this.run('tar', '-xf', archive, '-C', incoming, '--strip-components=1', '--no-same-owner');
      return incoming;
    };
    const nodeOf = (program: string) => nodeOfCopy(join(folder, CURRENT), node, program);
    await this.#trees.add(version, unpack, nodeOf, [await this.installed()]);
  }

  async switchTo(version: string): Promise<void> {
    // A link to nothing would leave the device without an agent.
    await versionIn(this.#trees.pathOf(version), this.files);
    await replaceLink(this.files, join(this.place.folder, CURRENT), join(VERSIONS, version), this.place.folder);
  }

  /** Before anything is fetched: Debian's smallest systems lack it, and tar would only say that it cannot run it. */
  async obstacle(): Promise<string | null> {
    if (programIn('xz', [...PROGRAM_FOLDERS, '/bin']) !== null) return null;
    return 'xz not found, with which releases are packed; install it: sudo apt install xz-utils';
  }

  async provideWatcher(path: string): Promise<void> {
    await replaceLink(this.files, path, this.#trees.pathOf(await this.installed()), dirname(path));
  }
}

/**
 * An installation by `npm install --global`. npm would replace the program file by file, and needs its registry for that. So it
 * installs into a folder beside the program, and the two change places by renames, which need neither network nor space.
 */
export class NpmInstallation implements InstalledProgram {
  readonly paths: ProgramPaths;
  readonly #trees: VersionTrees;

  constructor(
    readonly place: Place,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {
    this.paths = { node: place.node, cli: join(place.folder, 'dist/cli.js') };
    this.#trees = new VersionTrees(npmVersions(place.folder), files, run);
  }

  async installed(): Promise<string> {
    return versionIn(this.place.folder, this.files);
  }

  packages(): readonly [null] {
    return [null];
  }

  async stage(version: string, [archive = '']: readonly string[]): Promise<void> {
    const { folder, node } = this.place;
    const unpack = async (incoming: string) => {
      const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-update-notifier'];
      await this.run(node, npmBeside(node) ?? '', 'install', '--global', '--prefix', incoming, ...options, archive);
      return join(incoming, 'lib/node_modules', basename(folder));
    };
    await this.#trees.add(version, unpack, () => node, []);
    // The version to go back to: npm flushes nothing.
    await syncAll(folder, this.files);
  }

  async switchTo(version: string): Promise<void> {
    const { folder } = this.place;
    const staged = this.#trees.pathOf(version);
    const present = await this.installed().catch((error: unknown) => {
      if (hasErrno(error, 'ENOENT')) return null;
      throw error;
    });
    if (present !== version) {
      // Nothing is moved away that nothing replaces.
      await versionIn(staged, this.files);
      if (present !== null) await this.files.rename(folder, this.#trees.pathOf(present));
      await this.files.rename(staged, folder);
    }
    for (const each of [this.#trees.folder, dirname(folder)]) await this.files.syncFolder(each);
  }

  async obstacle(): Promise<string | null> {
    const { node } = this.place;
    if (npmBeside(node) !== null) return null;
    return `npm not found in ${[dirname(node), ...PROGRAM_FOLDERS].join(', ')}; install it, for example with: sudo apt install npm`;
  }

  /** The program moves while the watcher runs. */
  provideWatcher(path: string): Promise<void> {
    return copyForWatcher(path, this, this.files);
  }
}

const PROGRAM_FOLDERS = ['/usr/local/bin', '/usr/bin'];

const programIn = (name: string, folders: readonly string[]): string | null =>
  folders.map((folder) => join(folder, name)).find(existsSync) ?? null;

/** The file of npm, which Node.js runs: PATH may lack both, as in a unit of systemd. Null: there is no npm. */
function npmBeside(node: string): string | null {
  const found = programIn('npm', [dirname(node), ...PROGRAM_FOLDERS]);
  return found === null ? null : realpathSync(found);
}

/** What dpkg installs: packages replace the program in place, and those of both versions are kept. */
export class DebianInstallation implements InstalledProgram {
  readonly paths: ProgramPaths;

  constructor(
    readonly place: Place,
    private readonly archives: string,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {
    this.paths = { node: place.node, cli: join(place.folder, 'dist/cli.js') };
  }

  async installed(): Promise<string> {
    return versionIn(this.place.folder, this.files);
  }

  /** The gateway's package adds its code to the program, and needs the same version, whether the gateway runs or not. */
  packages(): readonly string[] {
    const services = [AGENT_SERVICE, GATEWAY_SERVICE];
    return services.map(({ name }) => name).filter((name) => name === AGENT_SERVICE.name || isPackageThere(name));
  }

  async stage(version: string, archives: readonly string[]): Promise<void> {
    await mkdir(this.archives, { recursive: true, mode: 0o700 });
    const kept = this.#archivesOf(await this.installed()).map((path) => basename(path));
    for (const name of await readdir(this.archives)) {
      if (!kept.includes(name)) await rm(join(this.archives, name), { recursive: true, force: true });
    }
    for (const [at, path] of this.#archivesOf(version).entries()) await cp(archives[at] ?? '', path);
    await syncAll(this.archives, this.files);
  }

  async switchTo(version: string): Promise<void> {
    // Together: each needs the other one's version.
    await this.run('dpkg', '--install', '--force-confold', ...this.#archivesOf(version));
  }

  async obstacle(): Promise<string | null> {
    const missing = this.#archivesOf(await this.installed()).find((path) => !existsSync(path));
    if (missing === undefined) return null;
    return `it could not go back, as ${missing} is missing; put the package of the installed version there, or update once with apt`;
  }

  /** The package's files disappear while the other version is installed. */
  provideWatcher(path: string): Promise<void> {
    return copyForWatcher(path, this, this.files);
  }

  #archivesOf(version: string): string[] {
    return this.packages().map((name) => join(this.archives, `${name}_${version}.deb`));
  }
}

const isPackageThere = (name: string): boolean => existsSync(packagedUnitOf(`${name}.service`));

/** Copies what the watcher needs of the program, and leads the link there. Copies of earlier versions are removed. */
async function copyForWatcher(path: string, program: InstalledProgram, files: UpdateFiles): Promise<void> {
  const { folder, node } = program.place;
  const copy = `${path}-${await program.installed()}`;
  await rm(copy, { recursive: true, force: true });
  await mkdir(copy, { recursive: true, mode: 0o755 });
  for (const name of ['package.json', 'defaults', 'dist']) {
    await cp(join(folder, name), join(copy, name), { recursive: true });
  }
  await syncAll(copy, files);
  const target = nodeOfCopy(folder, node, copy);
  if (target !== node) {
    await mkdir(dirname(target), { recursive: true });
    // A package replaces the name, not the file, which cannot be opened for writing while it runs.
    await link(node, target).catch(async () => {
      await cp(node, target);
      await files.sync(target);
    });
    for (const each of [dirname(target), copy]) await files.syncFolder(each);
  }
  await replaceLink(files, path, copy, dirname(path));
  for (const name of await readdir(dirname(path))) {
    const isEarlier = name.startsWith(`${basename(path)}-`) && name !== basename(copy);
    if (isEarlier) await rm(join(dirname(path), name), { recursive: true, force: true });
  }
}
