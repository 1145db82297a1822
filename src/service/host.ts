import { execFile } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { promisify } from 'node:util';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import type { ProgramPaths } from './unit.ts';

/** The machine on which a service is installed. */
export interface Host {
  /** What stands before every absolute path; empty but in tests. */
  readonly root: string;
  /** Whether systemd runs here; not so in a chroot in which an image is prepared. */
  readonly isBooted: boolean;
  /**
   * Runs one of the system's commands.
   *
   * @returns its standard output
   * @throws {OperatorError} with what the command complains of
   */
  run(command: string, ...args: string[]): Promise<string>;
}

/** This machine. */
export function thisHost(): Host {
  return { root: '', isBooted: existsSync('/run/systemd/system'), run };
}

/** Where this very program lies. */
export function thisProgram(): ProgramPaths {
  const [node, cli] = process.argv;
  if (node === undefined || cli === undefined) throw new OperatorError('cannot determine the path of this program');
  return { node: realpathSync(node), cli: realpathSync(cli) };
}

/** @throws {OperatorError} when this user may not change services, with the same command as root may give it */
export function requireRoot(): void {
  if (process.platform !== 'linux') throw new OperatorError('services require Linux with systemd');
  if (process.geteuid?.() === 0) return;
  throw new OperatorError(
    `root privileges required: run sudo ${[process.execPath, ...process.argv.slice(1)].join(' ')}`,
  );
}

/** Starting waits until the service is ready. */
const RUN_DEADLINE_MS = 360_000;

async function run(command: string, ...args: string[]): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)(command, args, { timeout: RUN_DEADLINE_MS });
    return stdout;
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) {
      throw new OperatorError(`${command} not found: services require systemd 247 or later`, 1, { cause: error });
    }
    const said = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : '';
    throw new OperatorError(`${command} ${args.join(' ')} failed: ${said || messageOf(error)}`, 1, { cause: error });
  }
}
