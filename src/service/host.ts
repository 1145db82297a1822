import { execFile } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { promisify } from 'node:util';
import { hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { rootCommand, shellWord } from '../lib/process/own-command.ts';
import type { ProgramPaths } from './unit.ts';

/** The machine on which a service is installed. */
export interface Host {
  /** Prefix of all absolute paths; empty except in tests. */
  readonly root: string;
  /** Whether systemd is running; false in a chroot, for example while an image is built. */
  readonly isBooted: boolean;
  /** Runs a command and returns its standard output; throws an {@link OperatorError} with its error output. */
  run(command: string, ...args: string[]): Promise<string>;
}

export function thisHost(): Host {
  return { root: '', isBooted: existsSync('/run/systemd/system'), run };
}

export function thisProgram(): ProgramPaths {
  const [node, cli] = process.argv;
  if (node === undefined || cli === undefined) throw new OperatorError('cannot determine the path of this program');
  return { node: throughCurrent(realpathSync(node)), cli: throughCurrent(realpathSync(cli)) };
}

/** In a folder of versions, the path through its link `current` is the one that holds after an update. */
function throughCurrent(path: string): string {
  const [, folder = '', version = '', rest = ''] = /^(.*)\/versions\/([^/]+)\/(.*)$/.exec(path) ?? [];
  const current = `${folder}/current`;
  const isCurrent = existsSync(current) && realpathSync(current) === `${folder}/versions/${version}`;
  return isCurrent ? `${current}/${rest}` : path;
}

/** @throws {OperatorError} when the user is not root, with the same command for sudo */
export function requireRoot(): void {
  if (process.platform !== 'linux') throw new OperatorError('services require Linux with systemd');
  if (process.geteuid?.() === 0) return;
  throw new OperatorError(`root privileges required: run ${withSudo()}`);
}

/** The command line of this process, for root. */
export function withSudo(): string {
  return rootCommand(process.argv.slice(2).map(shellWord).join(' '));
}

/** systemctl start waits until the service is ready. */
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
