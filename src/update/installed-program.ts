import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { OperatorError } from '../lib/errors.ts';
import type { ProgramPaths } from '../service/unit.ts';
import { KINDS, type Kind } from './release.ts';

/** In a folder of versions, the link to the installed one. */
export const CURRENT = 'current';

/**
 * Where versions are that are not the installed one, of a program that npm has installed. It is on the same disk, and npm ignores names that
 * begin with a dot.
 */
export const npmVersions = (program: string): string => join(dirname(program), '.device-agent-versions');

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
  /** The version that the next start runs. @throws when no version is complete, in the middle of a switch */
  installed(): Promise<string>;
  /**
   * Prepares a version, so that {@link switchTo} needs no network and hardly any disk. It is durable then.
   *
   * @param archives the files of the release, in the order of {@link packages}
   * @throws {OperatorError} when it is not that version
   */
  stage(version: string, archives: readonly string[]): Promise<void>;
  /** The Debian packages of it that are installed; null: it is one file of another kind. */
  packages(): readonly [null] | readonly string[];
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
 * @throws {OperatorError} when it was installed in another way, or others than root can change it
 */
export function placeOf({ node, cli }: ProgramPaths): Place {
  const program = dirname(dirname(cli));
  const kind = kindOf(program);
  if (kind === null) {
    throw new OperatorError(
      `update not supported for the program in ${program}: install it with npm install --global, as a .deb, or in ` +
        '/opt/device-agent (docs/updates.md); a container is updated by its image',
    );
  }
  for (const path of [program, node]) requireOwnedByRoot(path);
  return { kind, folder: kind === 'folder' ? dirname(program) : program, node };
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
  const [, library] = /^(.*\/lib)\/node_modules\/device-agent$/.exec(program) ?? [];
  // A project has its package.json there; the global folder of npm has none, whatever its prefix.
  return library !== undefined && !existsSync(`${library}/package.json`) ? 'npm' : null;
}

/** An update runs as root what is in this folder: a user who could change it would become root. */
function requireOwnedByRoot(path: string): void {
  for (let each = path; ; each = dirname(each)) {
    const found = statSync(each, { throwIfNoEntry: false });
    if (found !== undefined && (found.uid !== 0 || (found.mode & 0o1002) === 0o002)) {
      throw new OperatorError(
        `update not supported for the program in ${path}: other users than root can change ${each}; ` +
          'install Node.js and device-agent as root, for example in /usr/local (docs/updates.md)',
      );
    }
    if (each === dirname(each)) return;
  }
}
