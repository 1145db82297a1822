import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { GATEWAY_SERVICE } from '../../src/service/service.ts';

/** A child process that prints a line of JSON when it is ready. */
export interface Child<T> {
  process: ChildProcess;
  ready: T;
  /** Resolves with the next line of its output. */
  nextLine(): Promise<string>;
  stop(): Promise<void>;
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** A host that programs run on. */
export interface Place {
  /** Start of a command line that runs a program there. */
  launcher: readonly string[];
  /** Its IP address on the link to other places. */
  address: string;
}

/** This machine. */
export const HERE: Place = { launcher: [], address: '127.0.0.1' };

/** Starts one of the benchmark's scripts with the service's Node options; waits for its line. */
export async function startScript<T>(name: string, args: string[] = [], at = HERE): Promise<Child<T>> {
  const script = new URL(`./${name}.js`, import.meta.url).pathname;
  const recognise = (line: string) => (line.startsWith('{') ? (JSON.parse(line) as T) : undefined);
  return startChild(process.execPath, [...GATEWAY_SERVICE.nodeOptions, script, ...args], {}, recognise, at);
}

/**
 * What programs need of the environment. The rest may change figures: with NODE_EXTRA_CA_CERTS, each process starts 50 ms later
 * and takes 2 MiB more.
 */
const INHERITED = { PATH: process.env.PATH, HOME: process.env.HOME, TMPDIR: process.env.TMPDIR };

/** Starts any program and waits for a matching line of its output. */
export async function startChild<T>(
  command: string,
  args: string[],
  env: Record<string, string>,
  recognise: (line: string) => T | undefined,
  at = HERE,
): Promise<Child<T>> {
  const [program = '', ...rest] = [...at.launcher, command, ...args];
  const child = spawn(program, rest, { env: { ...INHERITED, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
  running.add(child);
  child.once('exit', () => running.delete(child));
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  const ready = await new Promise<T>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`${command} ${args.join(' ')} ended with ${code}`)));
    lines.on('line', (line) => {
      const found = recognise(line);
      if (found !== undefined) resolve(found);
    });
  });
  return {
    process: child,
    ready,
    nextLine: async () => {
      const [line] = await once(lines, 'line');
      return line as string;
    },
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGTERM');
      await once(child, 'exit');
    },
  };
}

/** Resident memory of a process in MiB; null without /proc. */
export function residentMiB(pid: number | undefined): number | null {
  try {
    const match = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return match ? Number(match[1]) / 1024 : null;
  } catch {
    return null;
  }
}

/** Microseconds of processor time that a process has taken, its threads included; NaN without /proc. */
export function processorTime(pid: number | undefined): number {
  try {
    // The name, in parentheses, may hold spaces. Ticks are a hundredth of a second.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    return Number.NaN;
  }
}

/** A free port, for programs that cannot choose one. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address ? address.port : 0;
}
