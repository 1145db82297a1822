import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import Libsql from 'libsql';
import type { GatewayOptions } from '../../../../src/gateway/context/gateway-options.ts';
import { Replica } from '../../../../src/gateway/store/shared/replica.ts';
import { Disk, NO_MOUNT } from '../../../support/disk.ts';
import { FlakyProxy } from '../../../support/flaky-proxy.ts';
import { freePorts } from '../../../support/free-ports.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';
import { CommitCut } from './commit-cut.ts';
import type { ClockJump, NodeNews } from './gateway-node.ts';

const PROGRAM = join(import.meta.dirname, '../../../../build/cluster/gateway-node.js');
export const ENCRYPTION_KEY = Buffer.alloc(32, 7).toString('base64');
/** Short, so that histories have expiries; the margin is longer than a busy machine pauses. */
export const PERIODS = { renewMs: 100, silentMs: 900, expiredMs: 4_000, marginMs: 1_500 };

/** A gateway of a history in a process of its own; what it says to the database and to others can be lost. */
export class HistoryNode {
  #running: ChildProcess | null = null;
  /** Breaks its connections to the database. */
  readonly commitCut = new CommitCut();
  /** Why its process has ended, each time that nobody wanted it. */
  readonly ended: string[] = [];
  /** Messages of its log, warnings and worse, since they were last taken. */
  #warnings: string[] = [];

  private constructor(
    readonly name: string,
    private readonly options: Omit<GatewayOptions, 'log'>,
    /** Between it and the database. */
    readonly database: FlakyProxy,
    /** Between the other gateways and it. */
    readonly link: FlakyProxy,
    /** Has its DATA_DIR; null where this machine can have none. */
    readonly disk: Disk | null,
  ) {
    database.watch = () => this.commitCut.watch();
  }

  static async start(name: string, databaseAddress: string, urlAt: (address: string) => string): Promise<HistoryNode> {
    const { first } = await freePorts(3);
    const database = await FlakyProxy.start(databaseAddress);
    const link = await FlakyProxy.start(`127.0.0.1:${first}`);
    const disk = NO_MOUNT === null ? Disk.mount('size=32m') : null;
    const options = {
      ...{
        dataDir: disk?.path ?? temporaryFolder(),
        domain: 'localhost',
        host: '127.0.0.1',
        encryptionKey: ENCRYPTION_KEY,
      },
      ...{ httpsPort: first, httpPort: first + 1, sessionPort: first + 2 },
      ...{ databaseUrl: urlAt(database.address), nodeAddress: link.address, periods: PERIODS },
    };
    const node = new HistoryNode(name, options, database, link, disk);
    await node.restart();
    return node;
  }

  get httpsPort(): number {
    return this.options.httpsPort;
  }

  get sessionPort(): number {
    return this.options.sessionPort as number;
  }

  get dataDir(): string {
    return this.options.dataDir;
  }

  /** Of all gateways, PEM. */
  get ca(): string {
    return readFileSync(join(this.options.dataDir, 'gateway', 'ca.pem'), 'utf8');
  }

  async restart(): Promise<void> {
    const refusal = await this.#start({});
    if (refusal !== null) throw new Error(`gateway ${this.name} ended as it started: ${refusal}`);
  }

  /** Why it does not start with settings that differ; null: it does. */
  refusal(differing: Partial<GatewayOptions>): Promise<string | null> {
    return this.#start(differing);
  }

  /** @returns why it does not start; null: it serves */
  #start(differing: Partial<GatewayOptions>): Promise<string | null> {
    const child = fork(PROGRAM, [JSON.stringify({ ...this.options, ...differing })]);
    this.#running = child;
    return new Promise((resolve) => {
      let reason: string | null = null;
      let serves = false;
      child.on('message', (news: NodeNews) => {
        if ('warning' in news) this.#warnings.push(news.warning);
        else if ('ends' in news) reason = news.ends;
        else {
          serves = true;
          resolve(null);
        }
      });
      child.once('exit', (code, signal) => {
        const why = reason ?? `exit ${code ?? signal}`;
        const isWanted = this.#running !== child;
        if (!isWanted) this.#running = null;
        if (serves && !isWanted) this.ended.push(`gateway ${this.name}: ${why}`);
        resolve(why);
      });
    });
  }

  /** The messages of its log, warnings and worse, since they were last taken. */
  takeWarnings(): string[] {
    const taken = this.#warnings;
    this.#warnings = [];
    return taken;
  }

  /** Waits until it has ended by itself, and takes that as wanted. @param why */
  async endsItself(why: RegExp): Promise<void> {
    await until(() => this.ended.some((each) => why.test(each)), `end of gateway ${this.name}: ${why}`, {
      everyMs: 20,
    });
    this.ended.splice(0, this.ended.length, ...this.ended.filter((each) => !why.test(each)));
  }

  /** As kill -9, or as systemd stops it. */
  async kill(signal: 'SIGKILL' | 'SIGTERM' = 'SIGKILL'): Promise<void> {
    const child = this.#running;
    this.#running = null;
    if (child === null || child.exitCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  /** Stops it as it is, until it continues. */
  stop(): void {
    this.#running?.kill('SIGSTOP');
  }

  continue(): void {
    this.#running?.kill('SIGCONT');
  }

  jumpClock(jump: ClockJump): void {
    this.#running?.send(jump);
  }

  /** Cuts its copy of the database off in the middle, as a failing disk does; it must not run. */
  damageCopy(): void {
    const file = join(this.options.dataDir, 'gateway', 'gateway.db');
    for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
    truncateSync(file, Math.floor(statSync(file).size / 2));
  }

  /** Looks at its copy of the database: the digests of gateways with the same are equal. */
  copy<T>(look: (replica: Replica) => T): T {
    const engine = new Libsql(join(this.options.dataDir, 'gateway', 'gateway.db'));
    try {
      return look(new Replica(engine));
    } finally {
      engine.close();
    }
  }

  async end(): Promise<void> {
    await this.kill();
    await Promise.all([this.database.close(), this.link.close()]);
  }
}
