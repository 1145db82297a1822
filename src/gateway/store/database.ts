import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type Libsql from 'libsql';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { asOperatorError, checkLog, createPrivately, damaged, prepareDatabaseFile, syncFile } from './database-file.ts';
import { isBusy, isUnwritable } from './database-problems.ts';
import { GroupCommit } from './group-commit.ts';
import { migrate, type OlderSchema } from './migrate.ts';
import { bind, PreparedStatements, type SqlValue } from './prepared-statements.ts';
import { sqlEngine } from './sql-engine.ts';

/** How long opening waits for another process (the command line beside a running gateway). */
const OPEN_TIMEOUT_MS = 5_000;
/** How long the engine waits for one afterwards, and holds up everything else; writes are then tried again. */
const BUSY_TIMEOUT_MS = 20;

interface OpenOptions {
  isDurable?: boolean;
  older?: OlderSchema;
}

/**
 * The gateway's database, from opening to closing it.
 *
 * Reads are synchronous. Writes are transactions handed to {@link Database.write}, answered only when they are on disk.
 */
export class Database {
  readonly #engine: Libsql.Database;
  readonly #file: string;
  readonly #statements: PreparedStatements;
  /** Those that give rows as lists of values. */
  readonly #rawStatements: PreparedStatements;
  readonly #writes: GroupCommit;
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
    this.#statements = new PreparedStatements(engine, 'objects');
    this.#rawStatements = new PreparedStatements(engine, 'values');
    this.#writes = new GroupCommit(engine, file, () => {
      this.#commits++;
      for (const listener of this.#afterCommit) listener();
    });
  }

  /**
   * Opens the database, making or upgrading it as needed.
   *
   * @param file its path; the folder must exist
   * @param options.isDurable whether the file stays
   * @param options.older what to do when an older version of this program wrote it; upgrade it, if not said otherwise
   * @throws {OperatorError} when the file is damaged, not a database, or of a newer version of this program; nothing of
   *   it was changed then
   */
  static open(file: string, { isDurable = true, older = 'upgrade' }: OpenOptions = {}): Database {
    let database: Database | null = null;
    try {
      prepareDatabaseFile(file);
      database = new Database(new (sqlEngine())(file, { timeout: OPEN_TIMEOUT_MS }), file, isDurable);
      database.#prepareFile(older);
      return database;
    } catch (error) {
      // Not close(): what cannot be trusted is left as it is.
      if (database) database.#engine.close();
      throw asOperatorError(error, file);
    }
  }

  /** Opens a copy of the database, on a disk that can be written; nobody else sees it, and nothing of it stays. */
  static openCopy(file: string, older: OlderSchema): Database {
    checkLog(file);
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-'));
    try {
      for (const suffix of ['', '-wal']) {
        if (existsSync(file + suffix)) copyFileSync(file + suffix, join(folder, `copy.db${suffix}`));
      }
      return Database.open(join(folder, 'copy.db'), { isDurable: false, older });
    } finally {
      // The engine has its files open; without names they go with the process, however that ends.
      rmSync(folder, { recursive: true, force: true });
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

  /** All rows of a query, as objects keyed by column; the caller names their type, which the SQL decides. */
  all<Row>(sql: string, parameters: readonly SqlValue[] = []): Row[] {
    const prepared = this.#statements.prepare(sql, parameters);
    return prepared.all(bind(parameters)) as Row[];
  }

  /** The first row of a query, or null. */
  get<Row>(sql: string, parameters: readonly SqlValue[] = []): Row | null {
    // Not the engine's own get(): that adds a member of its own to the row.
    return this.all<Row>(sql, parameters)[0] ?? null;
  }

  /** The first row of a query, as the values of its columns, or null: reading objects takes twice as long. */
  values(sql: string, parameters: readonly SqlValue[]): unknown[] | null {
    const row: unknown = this.#rawStatements.prepare(sql, parameters).get(bind(parameters));
    return (row as unknown[] | undefined) ?? null;
  }

  /** All rows of a query, each as the values of its columns. */
  allValues(sql: string, parameters: readonly SqlValue[]): unknown[][] {
    return this.#rawStatements.prepare(sql, parameters).all(bind(parameters)) as unknown[][];
  }

  /**
   * Changes rows; only inside {@link write}.
   *
   * @returns how many rows changed
   */
  run(sql: string, parameters: readonly SqlValue[] = []): number {
    if (!this.#writes.isRunning) throw new Error('a change outside a transaction');
    return this.#statements.prepare(sql, parameters).run(bind(parameters)).changes;
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
    return this.#writes.add(work);
  }

  /**
   * Copies the database as it is now into a new file, while it stays in use.
   *
   * @throws {OperatorError} when the file exists or cannot be written
   */
  backup(file: string): void {
    createPrivately(file);
    try {
      this.#statements.prepare('VACUUM INTO ?', [file]).run([file]);
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
    this.#writes.finish();
    this.#closed = true;
    if (this.isDurable) this.#checkpoint();
    this.#statements.clear();
    this.#rawStatements.clear();
    this.#engine.close();
  }

  #prepareFile(older: OlderSchema): void {
    this.#engine.exec('PRAGMA journal_mode = WAL');
    // FULL, not NORMAL: in WAL mode NORMAL loses the latest commits when the power goes.
    this.#engine.exec('PRAGMA synchronous = FULL');
    this.#engine.exec('PRAGMA foreign_keys = ON');
    const [problem] = this.all<{ quick_check: string }>('PRAGMA quick_check(1)');
    if (problem?.quick_check !== 'ok')
      throw new OperatorError(damaged(this.#file, problem?.quick_check ?? 'no answer'));
    migrate(this.#engine, this.#file, older);
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
}
