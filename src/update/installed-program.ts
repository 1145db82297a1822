import { existsSync } from 'node:fs';
import { cp, link, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
import { z } from 'zod';
import { messageOf, OperatorError } from '../lib/errors.ts';
import type { Host } from '../service/host.ts';
import { GATEWAY_SERVICE, packagedUnitOf } from '../service/service.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { KINDS, type Kind } from './release.ts';
import { replaceLink, type UpdateFiles } from './update-files.ts';

const CURRENT = 'current';
const VERSIONS = 'versions';

/** Where the program is, whatever its version. */
export const Place = z.object({
  kind: z.enum(KINDS),
  /** `folder`: the one with `versions` and `current`; else that of the program. */
  folder: z.string(),
  /** The Node.js that runs it. */
  node: z.string(),
});
export type Place = z.infer<typeof Place>;

/** The program on this machine, which may be replaced by another version. */
export interface InstalledProgram {
  readonly place: Place;
  /** Paths that lead to the installed version, also after a switch. */
  readonly paths: ProgramPaths;
  /** The version that the next start runs. */
  installed(): Promise<string>;
  /**
   * Prepares a version, so that {@link switchTo} needs no network and hardly any disk. It is durable then.
   *
   * @param archive the file of the release
   * @throws {OperatorError} when it is not that version
   */
  stage(version: string, archive: string): Promise<void>;
  /** Makes the next start run a version that was staged, or the one before it. Repeating it is harmless. */
  switchTo(version: string): Promise<void>;
  /** Why an update must not begin; null: it may. */
  obstacle(): Promise<string | null>;
  /** Puts the present version where the update's unit runs it from, whatever happens to the program. */
  provideWatcher(link: string): Promise<void>;
}

/**
 * Finds out how a program was installed.
 *
 * @param paths of the program; those of a folder of versions lead through its link `current`
 * @throws {OperatorError} when it was installed in another way
 */
export function placeOf({ node, cli }: ProgramPaths): Place {
  const program = dirname(dirname(cli));
  const kind = kindOf(program);
  if (kind !== null) return { kind, folder: kind === 'folder' ? dirname(program) : program, node };
  throw new OperatorError(
    `update not supported for the program in ${program}: install it with npm install --global, as a .deb, or in ` +
      '/opt/device-agent (docs/updates.md); a container is updated by its image',
  );
}

/** Whether a program can be updated, however it was installed. */
export function hasUpdates(program: ProgramPaths): boolean {
  try {
    placeOf(program);
    return true;
  } catch (error) {
    if (error instanceof OperatorError) return false;
    throw error;
  }
}

function kindOf(program: string): Kind | null {
  if (basename(program) === CURRENT) return 'folder';
  if (/^\/usr\/(?:lib|share)\/device-agent$/.test(program)) return 'deb';
  // The global folder of npm; those of projects are elsewhere.
  return /^\/(?:usr|usr\/local|opt\/[^/]+)\/lib\/node_modules\/device-agent$/.test(program) ? 'npm' : null;
}

/** @param archives folder in which npm and Debian packages stay */
export function installationAt(place: Place, archives: string, files: UpdateFiles, run: Host['run']): InstalledProgram {
  return place.kind === 'folder'
    ? new FolderInstallation(place, files, run)
    : new PackageInstallation(place, archives, files, run);
}

/** An installation in a folder of its own: `versions/<version>` beside the link `current`, which leads to one of them. */
export class FolderInstallation implements InstalledProgram {
  readonly paths: ProgramPaths;

  constructor(
    readonly place: Place,
    private readonly files: UpdateFiles,
    private readonly run: Host['run'],
  ) {
    this.paths = { node: place.node, cli: join(place.folder, CURRENT, 'dist/cli.js') };
  }

  async installed(): Promise<string> {
    return basename(await this.files.readlink(join(this.place.folder, CURRENT)));
  }

  async stage(version: string, archive: string): Promise<void> {
    const incoming = join(this.place.folder, VERSIONS, '.incoming');
    await rm(incoming, { recursive: true, force: true });
    await mkdir(incoming, { recursive: true, mode: 0o755 });
    await this.run('tar', '-xzf', archive, '-C', incoming, '--strip-components=1', '--no-same-owner');
    await requireVersion(incoming, version);
    await this.#requireStart(incoming, version);
    await syncAll(incoming, this.files);
    await this.#removeAllBut([version, await this.installed(), basename(incoming)]);
    const target = join(this.place.folder, VERSIONS, version);
    if ((await this.installed()) !== version) await rm(target, { recursive: true, force: true });
    await this.files.rename(incoming, target);
    await this.files.syncFolder(join(this.place.folder, VERSIONS));
  }

  async switchTo(version: string): Promise<void> {
    // A link to nothing would leave the device without an agent.
    await this.files.read(join(this.place.folder, VERSIONS, version, 'package.json'));
    await replaceLink(this.files, join(this.place.folder, CURRENT), join(VERSIONS, version), this.place.folder);
  }

  async obstacle(): Promise<null> {
    return null;
  }

  async provideWatcher(path: string): Promise<void> {
    await replaceLink(this.files, path, join(this.place.folder, VERSIONS, await this.installed()), dirname(path));
  }

  /** Before anything is switched: a wrong architecture or a missing file shows here, with the running agent untouched. */
  async #requireStart(incoming: string, version: string): Promise<void> {
    const own = relative(join(this.place.folder, CURRENT), this.place.node);
    const node = own.startsWith('..') ? this.place.node : join(incoming, own);
    const said = (await this.run(node, join(incoming, 'dist/cli.js'), '--version')).trim();
    // The commit follows the version.
    if (said.split(' ')[0] !== version)
      throw new OperatorError(`version ${version} does not start: it says ${JSON.stringify(said)}`);
  }

  async #removeAllBut(kept: readonly string[]): Promise<void> {
    const folder = join(this.place.folder, VERSIONS);
    for (const name of await readdir(folder)) {
      if (!kept.includes(name)) await rm(join(folder, name), { recursive: true, force: true });
    }
  }
}

/** What npm and dpkg install: the package replaces the program in place, and the archives of both versions are kept. */
export class PackageInstallation implements InstalledProgram {
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
    return versionIn(this.place.folder);
  }

  async stage(version: string, archive: string): Promise<void> {
    await mkdir(this.archives, { recursive: true, mode: 0o700 });
    const before = await this.installed();
    // npm can make the package again from what it has installed; dpkg cannot.
    if (this.place.kind === 'npm' && !existsSync(this.#archive(before))) {
      await this.run('npm', 'pack', this.place.folder, '--ignore-scripts', '--pack-destination', this.archives);
    }
    await this.#removeAllBut([before]);
    await cp(archive, this.#archive(version));
    await syncAll(this.archives, this.files);
  }

  async switchTo(version: string): Promise<void> {
    if (this.place.kind === 'npm') {
      await this.run('npm', 'install', '--global', '--no-audit', '--no-fund', this.#archive(version));
    } else {
      await this.run('dpkg', '--install', '--force-confold', this.#archive(version));
    }
  }

  async obstacle(): Promise<string | null> {
    const isNpm = this.place.kind === 'npm';
    if (!isNpm && existsSync(packagedUnitOf(`${GATEWAY_SERVICE.name}.service`))) {
      return `the package ${GATEWAY_SERVICE.name} needs the same version: update both with apt, which restarts them`;
    }
    const before = this.#archive(await this.installed());
    if (isNpm || existsSync(before)) return null;
    return `it could not go back, as ${before} is missing; put the package of the installed version there, or update once with apt`;
  }

  /** The package's files disappear while the other version is installed: the watcher runs from a copy. */
  async provideWatcher(path: string): Promise<void> {
    const copy = `${path}-${await this.installed()}`;
    await rm(copy, { recursive: true, force: true });
    await mkdir(copy, { recursive: true, mode: 0o755 });
    for (const name of ['package.json', 'defaults', 'dist']) {
      await cp(join(this.place.folder, name), join(copy, name), { recursive: true });
    }
    await syncAll(copy, this.files);
    const { node } = this.place;
    const own = relative(this.place.folder, node);
    if (!own.startsWith('..')) {
      const target = join(copy, own);
      await mkdir(dirname(target), { recursive: true });
      // A package replaces the name, not the file, which cannot be opened for writing while it runs.
      await link(node, target).catch(async () => {
        await cp(node, target);
        await this.files.sync(target);
      });
      for (const folder of [dirname(target), copy]) await this.files.syncFolder(folder);
    }
    await replaceLink(this.files, path, copy, dirname(path));
  }

  #archive(version: string): string {
    return join(
      this.archives,
      this.place.kind === 'npm' ? `device-agent-${version}.tgz` : `device-agent_${version}.deb`,
    );
  }

  async #removeAllBut(versions: readonly string[]): Promise<void> {
    const kept = versions.map((version) => basename(this.#archive(version)));
    for (const name of await readdir(this.archives)) {
      if (!kept.includes(name)) await rm(join(this.archives, name), { recursive: true, force: true });
    }
  }
}

async function requireVersion(program: string, version: string): Promise<void> {
  const found = await versionIn(program).catch((error: unknown) => messageOf(error));
  if (found !== version) {
    throw new OperatorError(`the file of version ${version} contains another one: ${found}; ask its publisher`);
  }
}

async function versionIn(program: string): Promise<string> {
  const { version }: { version?: unknown } = JSON.parse(await readFile(join(program, 'package.json'), 'utf8'));
  if (typeof version !== 'string') throw new Error(`${program}/package.json has no version`);
  return version;
}

/** Flushes all files of a folder, and their names. */
async function syncAll(folder: string, files: UpdateFiles): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await syncAll(path, files);
    else if (entry.isFile()) await files.sync(path);
  }
  await files.syncFolder(folder);
}
