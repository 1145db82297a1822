import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { chownSync, existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { freePorts } from './free-ports.ts';
import type { Missing } from './requirements.ts';
import { makeFolder } from './temporary-folder.ts';
import { until } from './until.ts';

/** Where Debian has the programs of each version, which are not in the path. */
const DEBIAN = '/usr/lib/postgresql';
/** Nobody: the server refuses to run as root. */
const UNPRIVILEGED = 65_534;

/** The folder of its programs; null: it is not installed. */
export const POSTGRES_PROGRAMS = foldersOf().find((folder) => existsSync(join(folder, 'initdb'))) ?? null;

export const NO_POSTGRES: Missing = POSTGRES_PROGRAMS === null ? 'PostgreSQL is not installed' : null;

/** A PostgreSQL server of a test's own. Its port stays the same after restarts. */
export class PostgresServer {
  #running: ChildProcess | null = null;
  readonly #standbys: PostgresServer[] = [];

  private constructor(
    private readonly folder: string,
    readonly port: number,
  ) {}

  static async start(): Promise<PostgresServer> {
    const parent = makeFolder();
    if (isRoot()) chownSync(parent, UNPRIVILEGED, UNPRIVILEGED);
    const folder = join(parent, 'pg');
    const args = ['-D', folder, '-U', 'gateway', '--auth=trust', '--no-sync', '-E', 'UTF8', '--locale=C'];
    execFileSync(join(POSTGRES_PROGRAMS ?? '', 'initdb'), args, { stdio: 'ignore', ...identity() });
    const server = new PostgresServer(folder, (await freePorts(1)).first);
    await server.restart();
    return server;
  }

  /** A copy of it as it is now, that can only be read: a standby that stays behind. It ends with this one. */
  async standby(): Promise<PostgresServer> {
    await this.kill();
    const folder = join(dirname(this.folder), `standby-${randomUUID().slice(0, 8)}`);
    // With modes and owners, which the server checks: Node.js 22 does not copy those of folders.
    execFileSync('cp', ['-a', this.folder, folder]);
    writeFileSync(join(folder, 'standby.signal'), '');
    if (isRoot()) chownSync(join(folder, 'standby.signal'), UNPRIVILEGED, UNPRIVILEGED);
    const standby = new PostgresServer(folder, (await freePorts(1)).first);
    this.#standbys.push(standby);
    await Promise.all([this.restart(), standby.restart()]);
    return standby;
  }

  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** @param address of a proxy in front of it */
  url(address = this.address): string {
    return `postgres://gateway@${address}/postgres`;
  }

  /** For what leads there from another network namespace. */
  get socketPath(): string {
    return join(this.folder, `.s.PGSQL.${this.port}`);
  }

  /** Runs statements by a connection of its own. */
  async query<Row>(sql: string, database = 'postgres'): Promise<Row[]> {
    const client = new pg.Client({ connectionString: this.url().replace(/postgres$/, database) });
    await client.connect();
    try {
      const { rows } = await client.query(sql);
      return rows as Row[];
    } finally {
      await client.end();
    }
  }

  async restart(): Promise<void> {
    await this.kill();
    // What a power cut would take is no matter here.
    const args = ['-D', this.folder, '-p', String(this.port), '-k', this.folder, '-c', 'fsync=off'];
    args.push('-c', 'listen_addresses=127.0.0.1', '-c', 'max_connections=40', '-c', 'shared_buffers=16MB');
    const program = join(POSTGRES_PROGRAMS ?? '', 'postgres');
    const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'], ...identity() });
    this.#running = child;
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      said = `${said}${text}`.slice(-2000);
    });
    const answers = async () => {
      if (child.exitCode !== null) throw new Error(`PostgreSQL ended: ${said}`);
      return this.#answers();
    };
    await until(answers, 'PostgreSQL to answer', { everyMs: 30 });
  }

  /** Ends it at once, without finishing anything. */
  async kill(): Promise<void> {
    const child = this.#running;
    this.#running = null;
    if (child === null || child.exitCode !== null) return;
    const ended = once(child, 'exit');
    // Immediate shutdown: killed by SIGKILL, it would leave its workers behind.
    child.kill('SIGQUIT');
    await ended;
  }

  /**
   * Runs statements in a transaction of its own, which keeps its locks.
   * @returns what ends it
   */
  async hold(sql: string): Promise<() => Promise<void>> {
    const client = new pg.Client({ connectionString: this.url() });
    await client.connect();
    await client.query(`BEGIN; ${sql}`);
    return () => client.end();
  }

  /** Lets everybody read only, or write again, also those who are connected. */
  async setReadOnly(isReadOnly: boolean): Promise<void> {
    const change = isReadOnly ? 'SET default_transaction_read_only = on' : 'RESET default_transaction_read_only';
    await this.query(`ALTER SYSTEM ${change}`);
    await this.query('SELECT pg_reload_conf()');
  }

  /** Makes a standby one that can be written. */
  async promote(): Promise<void> {
    await this.query('SELECT pg_promote()');
  }

  /** Ends it, and deletes its data; its standbys go on. */
  async discard(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true });
  }

  async end(): Promise<void> {
    await this.#killAll();
    rmSync(dirname(this.folder), { recursive: true });
  }

  async #killAll(): Promise<void> {
    await Promise.all([this.kill(), ...this.#standbys.map((standby) => standby.#killAll())]);
  }

  async #answers(): Promise<boolean> {
    return this.query('SELECT 1').then(
      () => true,
      () => false,
    );
  }
}

function foldersOf(): string[] {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : [];
  return [...versions.map((version) => join(DEBIAN, version, 'bin')), ...(process.env.PATH ?? '').split(':')];
}

function isRoot(): boolean {
  return process.geteuid?.() === 0;
}

function identity(): { uid?: number; gid?: number } {
  return isRoot() ? { uid: UNPRIVILEGED, gid: UNPRIVILEGED } : {};
}
