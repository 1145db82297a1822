import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { staleBecause } from '../../scripts/build.js';
import { CHOSEN_CONNECTOR } from './connectors.ts';

export const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

/** What programs need of the environment; all else would change what they do. */
const INHERITED = {
  PATH: process.env.PATH,
  TMPDIR: process.env.TMPDIR,
  DEVICE_AGENT_COMMAND: process.env.DEVICE_AGENT_COMMAND,
};

/** Processes that have not ended yet. */
const running = new Set<AgentProcess>();

/** Kills what a test has left running, for example one that failed or timed out. */
export async function endLeftProcesses(): Promise<void> {
  await Promise.all([...running].map((process) => process.end('SIGKILL')));
}

let checked = false;

/** @throws Error when `dist` is older than `src`: the test would run the wrong program */
export function requireFreshBuild(): void {
  const reason = checked ? null : staleBecause();
  if (reason !== null) throw new Error(`${reason}: the test would run the wrong program; run npm run build`);
  checked = true;
}

type LogLine = { level: string; msg: string } & Record<string, unknown>;

/** The agent as users start it: a process on free ports, with its own folder. */
export class AgentProcess {
  readonly lines: LogLine[] = [];
  readonly #waiting: { matches: (line: LogLine) => boolean; resolve: (line: LogLine) => void }[] = [];

  readonly #ended: Promise<number | null>;

  private constructor(
    readonly child: ChildProcess,
    readonly folder: string,
  ) {
    this.#ended = once(child, 'exit').then(([code]) => code as number | null);
    running.add(this);
    child.once('exit', () => running.delete(this));
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (text) => this.#take(text));
  }

  /**
   * Starts the agent in a working folder, which contains its `data` folder.
   *
   * @param launcher prefix of the command line, for example to run the agent in another namespace
   * @param cli the program of another version
   */
  static start(
    folder: string,
    env: Record<string, string> = {},
    args: string[] = [],
    launcher: string[] = [],
    cli: string = CLI,
  ): AgentProcess {
    const settings = {
      AGENT_PORT: '0',
      GATEWAY_HTTP_PORT: '0',
      GATEWAY_HTTPS_PORT: '0',
      LOG_FORMAT: 'json',
      AGENT_CONNECTOR: CHOSEN_CONNECTOR,
      ...env,
    };
    return AgentProcess.#spawn([...launcher, process.execPath, cli, ...args], folder, settings);
  }

  /** Like {@link start}, until the end of the test. */
  static inTest(...options: Parameters<typeof AgentProcess.start>): AgentProcess {
    const agent = AgentProcess.start(...options);
    onTestFinished(async () => void (await agent.end('SIGKILL')));
    return agent;
  }

  /** Starts another program that logs like the agent, for example one with several agents. */
  static run(script: string, args: string[], folder: string): AgentProcess {
    return AgentProcess.#spawn([process.execPath, script, ...args], folder, {});
  }

  static #spawn([program = '', ...rest]: string[], folder: string, env: Record<string, string>): AgentProcess {
    requireFreshBuild();
    const child = spawn(program, rest, {
      cwd: folder,
      env: { ...INHERITED, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return new AgentProcess(child, folder);
  }

  #take(text: string): void {
    // The SDK also writes lines, which cannot be disabled.
    if (!text.startsWith('{')) return;
    const line = JSON.parse(text) as LogLine;
    this.lines.push(line);
    for (const waiting of this.#waiting) if (waiting.matches(line)) waiting.resolve(line);
  }

  /**
   * The first log line with that message; waits for it if necessary.
   *
   * @param from lines to skip; `lines.length` skips all present lines
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

  /** `http://127.0.0.1:port` of the local API, once it listens. */
  async api(): Promise<string> {
    return String((await this.logged('local API listening')).url);
  }

  /** Resolves when the session and every tunnel are online. */
  async ready(): Promise<string> {
    const api = await this.api();
    for (const end = Date.now() + 60_000; Date.now() < end && this.child.exitCode === null; ) {
      // An agent that cannot start resets connections before it ends with the reason.
      const answer = await fetch(`${api}/readyz`).catch(() => null);
      await answer?.arrayBuffer();
      if (answer?.ok) return api;
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

/** The result of a command. */
export interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs the command line to its end, with only the given environment variables. */
export function deviceAgent(args: string[], folder: string, env: Record<string, string> = {}): Promise<Outcome> {
  return outcomeOf(process.execPath, [CLI, ...args], folder, env);
}

/** Runs any program to its end, with only the given environment variables. */
export function outcomeOf(
  program: string,
  args: string[],
  folder: string,
  env: Record<string, string> = {},
): Promise<Outcome> {
  requireFreshBuild();
  return new Promise((resolve) => {
    const options = { cwd: folder, env: { ...INHERITED, ...env }, timeout: 60_000 };
    execFile(program, args, options, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr });
    });
  });
}
