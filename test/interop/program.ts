import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

/** The end of a program. */
export interface Ended {
  code: number | null;
  stdout: string;
  /** Both streams, as a reader would see them. */
  output: string;
}

/** Runs a program of a client at low priority and waits for its end. */
export async function run(
  [program = '', ...args]: string[],
  options: { cwd: string; env?: Record<string, string | undefined> },
): Promise<Ended> {
  const child = spawn('nice', ['-n', '10', program, ...args], { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'close') as Promise<[number | null]>;
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = await ended;
  return { code, stdout, output: stdout + stderr };
}

/** Runs a step without which the rest makes no sense. @throws Error with its output when it fails */
export async function mustRun(command: string[], options: Parameters<typeof run>[1]): Promise<string> {
  const { code, stdout, output } = await run(command, options);
  if (code !== 0) throw new Error(`${command.join(' ')} failed with ${code}:\n${output.slice(-4000)}`);
  return stdout;
}
