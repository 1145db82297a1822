import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { staleBecause } from '../../scripts/build.js';

export const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

let checked = false;

/** @throws Error when `dist` is not what `src` says: a test would pass or fail for the wrong program */
export function requireFreshBuild(): void {
  const reason = checked ? null : staleBecause();
  if (reason !== null) throw new Error(`${reason}: the test would run the wrong program; run npm run build`);
  checked = true;
}

type LogLine = { level: string; msg: string } & Record<string, unknown>;

/** The agent as a user starts it: its own process, on free ports, in a folder of its own. */
export class AgentProcess {
  readonly lines: LogLine[] = [];
  readonly #waiting: { matches: (line: LogLine) => boolean; resolve: (line: LogLine) => void }[] = [];

  readonly #ended: Promise<number | null>;
  readonly #kill = () => void this.child.kill('SIGKILL');

  private constructor(
    readonly child: ChildProcess,
    readonly folder: string,
  ) {
    this.#ended = once(child, 'exit').then(([code]) => code as number | null);
    // A test that ran out of time leaves no agent behind.
    process.once('exit', this.#kill);
    child.once('exit', () => process.off('exit', this.#kill));
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (text) => this.#take(text));
  }

  /**
   * Starts the agent; `folder` is its working folder, in which its `data` lies.
   *
   * @param launcher the start of the command line, for an agent elsewhere than in this process's own surroundings
   */
  static start(
    folder: string,
    env: Record<string, string> = {},
    args: string[] = [],
    launcher: string[] = [],
  ): AgentProcess {
    const settings = { AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0', LOG_FORMAT: 'json', ...env };
    return AgentProcess.#spawn([...launcher, process.execPath, CLI, ...args], folder, settings);
  }

  /** Starts another program that logs as the agent does, such as one with several agents. */
  static run(script: string, args: string[], folder: string): AgentProcess {
    return AgentProcess.#spawn([process.execPath, script, ...args], folder, {});
  }

  static #spawn([program = '', ...rest]: string[], folder: string, env: Record<string, string>): AgentProcess {
    requireFreshBuild();
    const child = spawn(program, rest, {
      cwd: folder,
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return new AgentProcess(child, folder);
  }

  #take(text: string): void {
    // The SDK has lines of its own to say, which nothing can keep it from.
    if (!text.startsWith('{')) return;
    const line = JSON.parse(text) as LogLine;
    this.lines.push(line);
    for (const waiting of this.#waiting) if (waiting.matches(line)) waiting.resolve(line);
  }

  /**
   * The first log line with that message, past or to come.
   *
   * @param from how many lines to leave out, such as `lines.length` for what is to come alone
   */
  async logged(message: string, from = 0): Promise<LogLine> {
    const matches = (line: LogLine) => line.msg === message;
    const past = this.lines.slice(from).find(matches);
    if (past) return past;
    const ended = this.#ended.then((code) => {
      throw new Error(`the agent ended with ${code} before it logged: ${message}`);
    });
    return Promise.race([new Promise<LogLine>((resolve) => this.#waiting.push({ matches, resolve })), ended]);
  }

  /** `http://127.0.0.1:port` of the local API, once it is up. */
  async api(): Promise<string> {
    return String((await this.logged('local API listening')).url);
  }

  /** Resolves when the session is online and every tunnel is up. */
  async ready(): Promise<string> {
    const api = await this.api();
    for (const end = Date.now() + 20_000; Date.now() < end; ) {
      const { ok } = await fetch(`${api}/readyz`);
      if (ok) return api;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`the agent did not become ready: ${JSON.stringify(this.lines.slice(-5))}`);
  }

  /** Sends the signal and resolves with the exit code, null when the signal ended the process. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    this.child.kill(signal);
    return this.#ended;
  }
}

/** What a command left behind. */
export interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs the command line to its end, in an environment that holds nothing but what is given. */
export function deviceAgent(args: string[], folder: string, env: Record<string, string> = {}): Promise<Outcome> {
  return outcomeOf(process.execPath, [CLI, ...args], folder, env);
}

/** Runs any program to its end, in the same environment. */
export function outcomeOf(
  program: string,
  args: string[],
  folder: string,
  env: Record<string, string> = {},
): Promise<Outcome> {
  requireFreshBuild();
  return new Promise((resolve) => {
    const options = { cwd: folder, env: { PATH: process.env.PATH, ...env }, timeout: 20_000 };
    execFile(program, args, options, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}
