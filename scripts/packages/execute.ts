import { spawnSync } from 'node:child_process';

/**
 * Runs a program to its end.
 *
 * @returns its standard output
 * @throws Error with its error output, or that it is not installed
 */
export function execute(program: string, args: readonly string[], cwd = '.', env: NodeJS.ProcessEnv = {}): string {
  const { status, error, stdout, stderr } = spawnSync(program, args, {
    cwd,
    encoding: 'utf8',
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status === 0) return stdout;
  throw new Error(`${program} ${args.join(' ')} failed: ${error?.message ?? stderr}`);
}
