import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Libsql from 'libsql';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { asOperatorError, checkLog, createPrivately, damaged, prepareDatabaseFile, syncFile } from './database-file.ts';
import { DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from './database-problems.ts';
import { migrate } from './migrate.ts';

/** What a column may be set to. Flags are stored as 0 and 1, times as text. */
export type SqlValue = string | number | bigint | boolean | Uint8Array | Date | null;

/** How long opening waits for another process (the command line beside a running gateway). */
const OPEN_TIMEOUT_MS = 5_000;
/** How long a write waits for one, and for how much of that at a time it may hold up everything else. */
const WRITE_TIMEOUT_MS = 5_000;
const BUSY_TIMEOUT_MS = 20;
const BUSY_PAUSE_MS = 30;
/** Writes answered by one commit; bounds how long the event loop is held. */
const MAX_BATCH = 256;

type Statements = Map<string, { statement: Libsql.Statement; parameters: number }>;

interface PendingWrite {
  /** When it gives up waiting for another process, on the scale of `performance.now()`. */
  deadline: number;
  run: () => void;
  settle: () => void;
  reject: (error: unknown) => void;
}

/**
 * The gateway's database: the only module that touches the SQL engine.
 *
 * Reads are synchronous. Writes are transactions handed to {@link Database.write}; those that arrive together
 * share one commit, each in a savepoint of its own, and each is answered only when the commit is on disk.
 */
export class Database {
  readonly #engine: Libsql.Database;
  readonly #file: string;
  readonly #statements: Statements = new Map();
  /** Those that give rows as lists of values. */
  readonly #rawStatements: Statements = new Map();
  #pending: PendingWrite[] = [];
  /** Stops the flush that is due; null when none is. */
  #cancelFlush: (() => void) | null = null;
  #writing = false;
  #closed = false;
  #commits = 0;
  readonly #afterCommit = new Set<() => void>();

  private constructor(
    engine: Libsql.Database,
    file: string,
    /** False for a copy that ends with the process: what is answered as done has to be on the disk. */
    readonly isDurable: boolean,
  ) {
    this.#engine = engine;
    this.#file = file;
  }

  /**
   * Opens the database, making or upgrading it as needed.
   *
   * @param file its path; the folder must exist
   * @param isDurable whether the file stays
   * @throws {OperatorError} when the file is damaged, not a database, or of a newer version of this program; nothing of
   *   it was changed then
   */
  static open(file: string, isDurable = true): Database {
    let database: Database | null = null;
    try {
      prepareDatabaseFile(file);
      database = new Database(new Libsql(file, { timeout: OPEN_TIMEOUT_MS }), file, isDurable);
      database.#prepareFile();
      return database;
    } catch (error) {
      // Not close(): what cannot be trusted is left as it is.
      if (database) database.#engine.close();
      throw asOperatorError(error, file);
    }
  }

  /** Grows with every change by this process: whoever kept what it has read can tell that it is still true. */
  get commits(): number {
    return this.#commits;
  }

  /**
   * Calls back after every change, before it is answered.
   *
   * @param listener must not throw
   */
  onCommit(listener: () => void): void {
    this.#afterCommit.add(listener);
  }

  /** Opens a copy of the database, on a disk that can be written; nobody else sees it, and nothing of it stays. */
  static openCopy(file: string): Database {
    checkLog(file);
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-'));
    try {
      for (const suffix of ['', '-wal']) {
        if (existsSync(file + suffix)) copyFileSync(file + suffix, join(folder, `copy.db${suffix}`));
      }
      return Database.open(join(folder, 'copy.db'), false);
    } finally {
      // The engine has its files open; without names they go with the process, however that ends.
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** All rows of a query, as objects keyed by column; the caller names their type, which the SQL decides. */
  all<Row>(sql: string, parameters: readonly SqlValue[] = []): Row[] {
    const prepared = this.#prepare(sql, parameters);
    return prepared.all(bind(parameters)) as Row[];
  }

  /** The first row of a query, or null. */
  get<Row>(sql: string, parameters: readonly SqlValue[] = []): Row | null {
    // Not the engine's own get(): that adds a member of its own to the row.
    return this.all<Row>(sql, parameters)[0] ?? null;
  }

  /** The first row of a query, as the values of its columns, or null: reading objects takes twice as long. */
  values(sql: string, parameters: readonly SqlValue[]): unknown[] | null {
    const row: unknown = this.#prepare(sql, parameters, true).get(bind(parameters));
    return (row as unknown[] | undefined) ?? null;
  }

  /** All rows of a query, each as the values of its columns. */
  allValues(sql: string, parameters: readonly SqlValue[]): unknown[][] {
    return this.#prepare(sql, parameters, true).all(bind(parameters)) as unknown[][];
  }

  /**
   * Changes rows; only inside {@link write}.
   *
   * @returns how many rows changed
   */
  run(sql: string, parameters: readonly SqlValue[] = []): number {
    if (!this.#writing) throw new Error('a change outside a transaction');
    return this.#prepare(sql, parameters).run(bind(parameters)).changes;
  }

  /**
   * Runs a transaction: all of `work` or nothing of it.
   *
   * `work` must be synchronous. It runs soon, not at once, together with others that wait.
   *
   * @returns what `work` returns, once it is durable
   * @throws whatever `work` throws, after undoing its changes; an error of the engine when the commit fails
   * @throws {DatabaseBusy} when another process holds the database for longer than 5 s
   * @throws {DatabaseUnwritable} when the disk does not take it
   */
  write<T>(work: () => T): Promise<T> {
    if (this.#closed) return Promise.reject(new Error('the database is closed'));
    return new Promise<T>((resolve, reject) => {
      let value: T;
      this.#pending.push({
        deadline: performance.now() + WRITE_TIMEOUT_MS,
        run: () => {
          value = work();
        },
        settle: () => resolve(value),
        reject,
      });
      // After the requests that are readable in this turn of the event loop have been parsed: they share the commit.
      if (!this.#cancelFlush) this.#flushSoon();
    });
  }

  /**
   * Copies the database as it is now into a new file, while it stays in use.
   *
   * @throws {OperatorError} when the file exists or cannot be written
   */
  backup(file: string): void {
    createPrivately(file);
    try {
      this.#prepare('VACUUM INTO ?', [file]).run([file]);
      syncFile(file);
    } catch (error) {
      rmSync(file);
      throw new OperatorError(`cannot write the backup ${file}: ${messageOf(error)}`, 1, { cause: error });
    }
  }

  /** The problems that a full check of the file finds; empty when it is sound. */
  problems(): string[] {
    const rows = this.all<{ integrity_check: string }>('PRAGMA integrity_check');
    const broken = this.all('PRAGMA foreign_key_check').map((row) => `dangling reference ${JSON.stringify(row)}`);
    return [...rows.map((row) => row.integrity_check).filter((line) => line !== 'ok'), ...broken];
  }

  /** Finishes the writes that wait, then closes; closing twice does no harm. */
  close(): void {
    if (this.#closed) return;
    while (this.#pending.length > 0) this.#flush();
    this.#cancelFlush?.();
    this.#closed = true;
    if (this.isDurable) this.#checkpoint();
    this.#statements.clear();
    this.#rawStatements.clear();
    this.#engine.close();
  }

  #prepareFile(): void {
    this.#engine.exec('PRAGMA journal_mode = WAL');
    // FULL, not NORMAL: in WAL mode NORMAL loses the latest commits when the power goes.
    this.#engine.exec('PRAGMA synchronous = FULL');
    this.#engine.exec('PRAGMA foreign_keys = ON');
    const [problem] = this.all<{ quick_check: string }>('PRAGMA quick_check(1)');
    if (problem?.quick_check !== 'ok')
      throw new OperatorError(damaged(this.#file, problem?.quick_check ?? 'no answer'));
    migrate(this.#engine, this.#file);
    this.#checkpoint();
    this.#engine.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  }

  /**
   * Brings the log into the database. The engine leaves that to the next thousand pages, and so to the end of days on a
   * gateway that is rarely changed: a damaged log would then cost all of them.
   */
  #checkpoint(): void {
    try {
      this.all('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch (error) {
      // A full disk, or another process: all of it stays in the log, and a later checkpoint brings it over.
      if (!isUnwritable(error) && !isBusy(error)) throw error;
    }
  }

  #flushSoon(): void {
    const immediate = setImmediate(() => this.#flush());
    this.#cancelFlush = () => clearImmediate(immediate);
  }

  #flush(): void {
    this.#cancelFlush?.();
    this.#cancelFlush = null;
    const batch = this.#pending.splice(0, MAX_BATCH);
    const done: PendingWrite[] = [];
    this.#writing = true;
    try {
      this.#engine.exec('BEGIN IMMEDIATE');
      for (const write of batch) {
        if (this.#runInSavepoint(write)) done.push(write);
      }
      this.#engine.exec('COMMIT');
      this.#commits++;
    } catch (error) {
      this.#rollBack();
      if (isBusy(error)) this.#wait(batch, error);
      else this.#fail(batch, error);
      return;
    } finally {
      this.#writing = false;
      if (this.#pending.length > 0 && !this.#cancelFlush) this.#flushSoon();
    }
    for (const listener of this.#afterCommit) listener();
    for (const write of done) write.settle();
  }

  /** Another process writes: everything else goes on until it is done, or the patience of a write is over. */
  #wait(batch: PendingWrite[], cause: unknown): void {
    const now = performance.now();
    for (const write of batch) {
      if (write.deadline <= now) write.reject(new DatabaseBusy(this.#file, cause));
    }
    this.#pending.unshift(...batch.filter(({ deadline }) => deadline > now));
    const timer = setTimeout(() => this.#flush(), BUSY_PAUSE_MS);
    this.#cancelFlush = () => clearTimeout(timer);
  }

  #fail(batch: readonly PendingWrite[], error: unknown): void {
    const reason = isUnwritable(error) ? new DatabaseUnwritable(this.#file, error) : error;
    for (const write of batch) write.reject(reason);
  }

  /** Whether the work went through; when not, its changes are undone and its caller was told. */
  #runInSavepoint(write: PendingWrite): boolean {
    this.#engine.exec('SAVEPOINT request');
    try {
      write.run();
    } catch (error) {
      this.#engine.exec('ROLLBACK TO request');
      this.#engine.exec('RELEASE request');
      write.reject(error);
      return false;
    }
    this.#engine.exec('RELEASE request');
    return true;
  }

  #rollBack(): void {
    // A full or failing disk may have ended the transaction already.
    if (this.#engine.inTransaction) this.#engine.exec('ROLLBACK');
  }

  #prepare(sql: string, parameters: readonly SqlValue[], raw = false): Libsql.Statement {
    const statements = raw ? this.#rawStatements : this.#statements;
    let prepared = statements.get(sql);
    if (!prepared) {
      const statement = this.#engine.prepare(sql);
      prepared = { statement: raw ? statement.raw() : statement, parameters: sql.split('?').length - 1 };
      statements.set(sql, prepared);
    }
    // The engine accepts any number of parameters, silently.
    if (prepared.parameters !== parameters.length) {
      throw new Error(`${parameters.length} parameters for ${prepared.parameters} places in: ${sql}`);
    }
    return prepared.statement;
  }
}

/**
 * Turns values into what the engine can bind. A boolean, a Date, or a Uint8Array that is no Buffer would abort the
 * whole process (tursodatabase/libsql-js issues 60 and 114).
 */
function bind(parameters: readonly SqlValue[]): (string | number | bigint | Buffer | null)[] {
  return parameters.map((value) => {
    if (value === null) return null;
    switch (typeof value) {
      case 'string':
        // The engine would cut it off there, silently.
        if (value.includes('\0')) throw new TypeError('cannot store a text with a NUL character');
        return value;
      case 'number':
      case 'bigint':
        return value;
      case 'boolean':
        return value ? 1 : 0;
      default:
        if (value instanceof Date) return value.getTime();
        if (Buffer.isBuffer(value)) return value;
        if (value instanceof Uint8Array) return Buffer.from(value);
        throw new TypeError(`cannot store a value of type ${typeof value}`);
    }
  });
}

/** Whether the engine refused a change because of the given rule, such as `UNIQUE` or `FOREIGNKEY`. */
export function isConstraint(error: unknown, rule: 'UNIQUE' | 'PRIMARYKEY' | 'FOREIGNKEY'): boolean {
  return error instanceof Error && hasErrno(error, `SQLITE_CONSTRAINT_${rule}`);
}
