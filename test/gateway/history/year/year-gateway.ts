import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import type { YearNodeCalls, YearNodeOptions } from './year-node.ts';

const PROGRAM = join(import.meta.dirname, '../../../../build/history/year-node.js');

type Sent =
  | { id: number; result?: unknown; error?: string }
  | { warning: { msg: string; reason: string } }
  | { question: string; to: number };

type Call = readonly [name: string, args: readonly unknown[]];

/** A gateway of a simulated year, in a process that can be killed. */
export class YearGateway {
  readonly folder = temporaryFolder();
  /** Messages of its log. */
  readonly warnings: string[] = [];
  /** The longest time that its processes were blocked, in milliseconds. */
  blockedMs = 0;
  #child: ChildProcess | null = null;
  #calls = 0;
  readonly #later: Call[] = [];
  readonly #waiting = new Map<number, { resolve: (result: unknown) => void; reject: (error: Error) => void }>();

  constructor(
    readonly node: string,
    private readonly databaseUrl: string,
    /** Asks the others that run. */
    private readonly askOthers: (self: YearGateway, question: string) => Promise<Record<string, string>>,
  ) {}

  get isRunning(): boolean {
    return this.#child !== null;
  }

  /** @param at milliseconds since 1970 */
  async start(at: number): Promise<void> {
    const { folder, node, databaseUrl } = this;
    const options: YearNodeOptions = { folder, node, databaseUrl, at };
    const child = fork(PROGRAM, [JSON.stringify(options)], { execArgv: [] });
    this.#child = child;
    child.on('message', (sent: Sent) => {
      if ('warning' in sent) this.warnings.push(`${sent.warning.msg}: ${sent.warning.reason}`);
      else if ('question' in sent)
        void this.askOthers(this, sent.question).then((answers) => child.send({ answers, to: sent.to }));
      else {
        const { resolve, reject } = this.#waiting.get(sent.id) ?? {};
        this.#waiting.delete(sent.id);
        if (sent.error === undefined) resolve?.(sent.result);
        else reject?.(new Error(`gateway ${node}: ${sent.error}`));
      }
    });
    child.once('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`gateway ${node} has ended`));
      this.#waiting.clear();
    });
    await this.call('start');
  }

  /** Does something with the next call: each message takes a while on a busy machine. */
  later<Name extends keyof YearNodeCalls>(name: Name, ...args: Parameters<YearNodeCalls[Name]>): void {
    this.#later.push([name, args]);
  }

  /** Does what was to be done later, and then this. */
  async call<Name extends keyof YearNodeCalls>(
    name: Name,
    ...args: Parameters<YearNodeCalls[Name]>
  ): Promise<Awaited<ReturnType<YearNodeCalls[Name]>>> {
    const calls = [...this.#later.splice(0), [name, args] as const];
    return (await this.#send(calls)) as Awaited<ReturnType<YearNodeCalls[Name]>>;
  }

  /** What it answers another gateway. */
  answer(question: string): Promise<string> {
    return this.#send([['answer', [question]]]) as Promise<string>;
  }

  /** @returns what the last one returns */
  #send(calls: readonly Call[]): Promise<unknown> {
    this.#calls += 1;
    const id = this.#calls;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child?.send({ id, calls });
    });
  }

  async stop(): Promise<void> {
    this.blockedMs = Math.max(this.blockedMs, await this.call('blocked'));
    await this.call('stop');
    await this.kill();
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    this.#later.length = 0;
    if (child === null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  loseDisk(): void {
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(this.folder, `history.db${suffix}`), { force: true });
  }

  get bytes(): number {
    return statSync(join(this.folder, 'history.db')).size;
  }
}
