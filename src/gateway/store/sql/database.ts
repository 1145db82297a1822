import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type Libsql from 'libsql';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { messageOf, OperatorError } from '../../../lib/errors.ts';
import { ChangedRows, type RowChanges } from './changed-rows.ts';
import {
  asOperatorError,
  checkLog,
  createPrivately,
  INCREMENTAL,
  prepareDatabaseFile,
  rescueOf,
  reserveIndex,
  syncFile,
} from './database-file.ts';
import {
  DatabaseDamaged,
  type DatabaseHeld,
  DatabaseUnwritable,
  isBusy,
  isDamage,
  isUnwritable,
} from './database-problems.ts';
import { GroupCommit, type RowsRead, type WriteQueue } from './group-commit.ts';
import { migrate, type OlderSchema } from './migrations.ts';
import { bind, PreparedStatements, type SqlValue, sqlEngine } from './sql-engine.ts';

/** How long opening waits for another process: a command that encrypts all secrets again takes one transaction for that. */
const OPEN_TIMEOUT_MS = 30_000;
/** How long the engine waits for a lock afterwards, which blocks the event loop; writes then retry. */
const BUSY_TIMEOUT_MS = 20;
/** A disk in memory, which Linux always has. */
const MEMORY_FOLDER = '/dev/shm';

/** Free pages, of 4 KiB, that are always kept; and how many are returned at once, in about 3 ms (measured). */
const MIN_EXCESS_PAGES = 1024;
const RETURNED_PAGES = 256;

/** Per cache of what was read until the next commit: clients choose some of the keys. */
const MAX_REMEMBERED = 1024;

/** Of a replica of a shared database, in one row; its existence makes a database a replica. */
export const REPLICA_TABLE = 'replica';
/** Which commits of the shared database the replica has seen, and which of them were lost. */
export const PAST_TABLE = 'replica_past';
export const LOSS_TABLE = 'replica_loss';
/** What a replica knows for itself alone. */
export const REPLICA_TABLES: readonly string[] = [REPLICA_TABLE, PAST_TABLE, LOSS_TABLE];

/** What the code needs that makes a database the replica of a shared one. */
export interface ReplicaParts {
  engine: Libsql.Database;
  file: string;
  /** To be called with rows that were applied. */
  onRows: (rows: readonly { tbl: string; key: string }[]) => void;
  /** To be called with errors of the engine. */
  onError: (error: unknown) => void;
}

/** Who makes a change, for the audit log. */
export interface Caller {
  /** The id of an API key or person; `gateway` for a command on the gateway's machine, `device` for one that joins or leaves. */
  readonly by: string;
  /** Whether a person acts as an operator, at the dashboard. */
  readonly isOperator?: boolean;
  /** IP address; null for a command. */
  readonly from: string | null;
  /** The id of the bulk action that the change is a part of; left out: of none. */
  readonly partOf?: string;
}

type Values = Readonly<Record<string, unknown>>;

/** A row that somebody changes, without what is secret; null: it was or is not there. */
export interface RowChange {
  readonly table: string;
  readonly before: Values | null;
  readonly after: Values | null;
}

interface OpenOptions {
  unwritable?: DatabaseUnwritable | null;
  older?: OlderSchema;
}

/** Reads are synchronous. Writes are transactions passed to {@link Database.write}, which resolve when they are on disk. */
export class Database {
  readonly #statements: PreparedStatements;
  readonly #rawStatements: PreparedStatements;
  #writes: WriteQueue;
  #closed = false;
  /** Of the last write; null: the disk could be written. */
  #writeFailure: DatabaseUnwritable | null = null;
  #commits = 0;
  /** Of the write that runs now. */
  #caller: Caller | null = null;
  #usualCaller: Caller | null = null;
  #onChange: ((caller: Caller, change: RowChange) => void) | null = null;
  readonly #afterCommit = new Set<() => void>();
  readonly #onRowApplied = new Set<(table: string, id: string) => void>();
  readonly changes = new ChangedRows();
  #isKeptElsewhere = false;
  #onDamage: ((problem: string) => void) | null = null;
  /** Says why changes of others have to wait; null: they need not. */
  #held: () => DatabaseHeld | null = () => null;
  /** Of the database and its log, as they were opened. */
  #inodes = '';

  private constructor(
    private readonly engine: Libsql.Database,
    private readonly file: string,
    /** Why this is a temporary copy, which is gone when the process ends; null for the database itself. */
    readonly temporary: DatabaseUnwritable | null,
    private readonly older: OlderSchema,
  ) {
    this.#statements = new PreparedStatements(engine, 'objects');
    this.#rawStatements = new PreparedStatements(engine, 'values');
    this.#writes = new GroupCommit(
      engine,
      file,
      () => this.#requireFile(),
      () => this.#committed(),
    );
  }

  #committed(): void {
    this.#commits++;
    for (const listener of this.#afterCommit) listener();
  }

  /**
   * Opens the database, and creates or upgrades it. For a temporary copy, `unwritable` says why it is one.
   * @throws {OperatorError} when it is damaged, not a database, or from a newer version; it is then left unchanged
   */
  static open(file: string, { unwritable = null, older = 'upgrade' }: OpenOptions = {}): Database {
    let database: Database | null = null;
    try {
      prepareDatabaseFile(file);
      database = new Database(new (sqlEngine())(file, { timeout: OPEN_TIMEOUT_MS }), file, unwritable, older);
      database.#prepareFile();
      return database;
    } catch (error) {
      // Not close(), which would change a damaged database.
      if (database) database.engine.close();
      throw asOperatorError(error, file);
    }
  }

  /** Opens a private, temporary copy of the database on another disk. @throws {OperatorError} also when none has room */
  static openCopy(file: string, older: OlderSchema, unwritable: DatabaseUnwritable): Database {
    checkLog(file);
    try {
      return Database.#openCopyIn(tmpdir(), file, older, unwritable);
    } catch (error) {
      // Often on the same disk.
      if (!existsSync(MEMORY_FOLDER)) throw error;
      return Database.#openCopyIn(MEMORY_FOLDER, file, older, unwritable);
    }
  }

  static #openCopyIn(parent: string, file: string, older: OlderSchema, unwritable: DatabaseUnwritable): Database {
    const folder = mkdtempSync(join(parent, 'device-agent-'));
    try {
      for (const suffix of ['', '-wal']) {
        if (existsSync(file + suffix)) copyFileSync(file + suffix, join(folder, `copy.db${suffix}`));
      }
      return Database.open(join(folder, 'copy.db'), { unwritable, older });
    } finally {
      // The engine has its files open; without names they disappear when the process ends, even in a crash.
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** Grows with every change by this process, so that caches can tell whether they are current. */
  get commits(): number {
    return this.#commits;
  }

  /** Which rows this process or another one has changed since the last call. */
  takeChanges(): RowChanges {
    const [row] = this.all<{ data_version: number }>('PRAGMA data_version');
    return this.changes.take(row?.data_version ?? 0);
  }

  /** Calls the listener after every commit, before the write resolves. It must not throw. */
  onCommit(listener: () => void): void {
    this.#afterCommit.add(listener);
  }

  /** Remembers what was read until the next commit, of as many keys as a cache has room for. */
  untilCommit<T>(read: (key: string) => T): (key: string) => T {
    const known = new BoundedMap<string, { value: T }>(MAX_REMEMBERED);
    this.onCommit(() => known.clear());
    return (key) => {
      const found = known.get(key) ?? { value: read(key) };
      known.set(key, found);
      return found.value;
    };
  }

  /** Calls the listener for each row that was applied from a shared database, before those of {@link onCommit}. */
  onRowApplied(listener: (table: string, id: string) => void): void {
    this.#onRowApplied.add(listener);
  }

  /** Calls the listener when the file turns out to be damaged while it is in use. */
  onDamage(listener: (problem: string) => void): void {
    this.#onDamage = listener;
  }

  #noteDamage(error: unknown): void {
    if (isDamage(error)) this.#onDamage?.(messageOf(error));
  }

  #noting<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      this.#noteDamage(error);
      throw error;
    }
  }

  /** Whether this is a replica of a shared database. */
  get isReplica(): boolean {
    return this.get('SELECT 1 FROM sqlite_master WHERE name = ?', [REPLICA_TABLE]) !== null;
  }

  /**
   * The newest event that a shared database has kept when it lost commits the last time; null: this replica has found no loss, or
   * not which event that is.
   */
  get keptEvent(): string | null {
    if (this.get('SELECT 1 FROM sqlite_master WHERE name = ?', [LOSS_TABLE]) === null) return null;
    const sql = `SELECT text->>'keptEvent' AS kept FROM ${LOSS_TABLE} ORDER BY number DESC LIMIT 1`;
    return this.get<{ kept: string }>(sql)?.kept || null;
  }

  /** The version of its schema. */
  get schema(): number {
    return this.get<{ user_version: number }>('PRAGMA user_version')?.user_version ?? 0;
  }

  /** Why the shared database cannot be used now, so that changes fail; null: it can. Undefined: there is none. */
  get away(): string | null | undefined {
    return this.#writes.away;
  }

  replicaParts(): ReplicaParts {
    const onRows: ReplicaParts['onRows'] = (rows) => {
      for (const { tbl, key } of rows) {
        const id = String((JSON.parse(key) as unknown[])[0]);
        this.changes.add(tbl, id);
        for (const listener of this.#onRowApplied) listener(tbl, id);
      }
      this.#committed();
    };
    return { engine: this.engine, file: this.file, onRows, onError: (error) => this.#noteDamage(error) };
  }

  /** From now on, writes go to another queue, which keeps them. */
  writeTo(queue: WriteQueue): void {
    this.#writes = queue;
    this.#isKeptElsewhere = true;
  }

  /** Why nothing keeps changes; null: they are kept. */
  get unwritable(): DatabaseUnwritable | null {
    return this.#isKeptElsewhere ? null : this.temporary;
  }

  /** All rows of a query as objects keyed by column. The caller must name the type that the SQL returns. */
  all<Row>(sql: string, parameters: readonly SqlValue[] = []): Row[] {
    return this.#noting(() => this.#statements.prepare(sql, parameters).all(bind(parameters)) as Row[]);
  }

  get<Row>(sql: string, parameters: readonly SqlValue[] = []): Row | null {
    // Not the engine's own get(), which adds a member to the row.
    return this.all<Row>(sql, parameters)[0] ?? null;
  }

  /** The first row of a query as an array of values, or null: objects take twice as long to read. */
  values(sql: string, parameters: readonly SqlValue[]): unknown[] | null {
    const row: unknown = this.#noting(() => this.#rawStatements.prepare(sql, parameters).get(bind(parameters)));
    return (row as unknown[] | undefined) ?? null;
  }

  /** All rows of a query, each as an array of values. */
  allValues(sql: string, parameters: readonly SqlValue[]): unknown[][] {
    return this.#noting(() => this.#rawStatements.prepare(sql, parameters).all(bind(parameters)) as unknown[][]);
  }

  /** A single value that belongs to the whole database; null when it was never set. */
  fact(name: string): string | null {
    return this.get<{ value: string }>('SELECT value FROM facts WHERE name = ?', [name])?.value ?? null;
  }

  /** Only inside {@link write}. */
  setFact(name: string, value: string): void {
    this.run('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)', [name, value]);
  }

  /** Only inside {@link write}. */
  forgetFact(name: string): void {
    this.run('DELETE FROM facts WHERE name = ?', [name]);
  }

  /** Changes rows, only inside {@link write}; returns how many. */
  run(sql: string, parameters: readonly SqlValue[] = []): number {
    if (!this.#writes.isRunning) throw new Error('change outside a transaction');
    return this.#noting(() => this.#statements.prepare(sql, parameters).run(bind(parameters)).changes);
  }

  /**
   * Runs a transaction. `work` is synchronous, and runs later, in one commit with other pending writes.
   *
   * @param caller whose changes are recorded in the audit log; null: nobody's, the gateway makes them for itself
   * @returns what `work` returns, once it is durable
   * @throws what `work` throws, after rolling its changes back; an error of the engine when the commit fails
   * @throws {DatabaseBusy} when another process locks the database for longer than 5 s
   * @throws {DatabaseUnwritable} when the disk cannot be written
   * @throws {DatabaseHeld} when changes that somebody makes have to wait
   */
  write<T>(work: () => T, caller: Caller | null = this.#usualCaller): Promise<T> {
    if (this.#closed) return Promise.reject(new Error('the database is closed'));
    // A command would report a success that nothing keeps.
    if (this.unwritable !== null && this.older !== 'upgrade') return Promise.reject(this.unwritable);
    const held = caller === null ? null : this.#held();
    if (held !== null) return Promise.reject(held);
    return this.#noted(
      this.#writes.add(() => {
        this.#caller = caller;
        try {
          return work();
        } finally {
          this.#caller = null;
        }
      }),
    );
  }

  /**
   * As {@link write}, for a change that nobody makes, and about which only few rows decide: in a shared database, it does not wait
   * for what others change beside these. A gateway that is far from the database would lose every race against them.
   *
   * @param reads the rows that `work` reads besides those that it changes; that one of them has been deleted must not matter
   */
  writeApart<T>(work: () => T, reads: readonly RowsRead[]): Promise<T> {
    if (this.#closed) return Promise.reject(new Error('the database is closed'));
    return this.#noted(this.#writes.add(work, reads));
  }

  /** Remembers whether the disk could be written. */
  #noted<T>(done: Promise<T>): Promise<T> {
    done.then(
      () => {
        this.#writeFailure = null;
      },
      (error: unknown) => {
        if (error instanceof DatabaseUnwritable) this.#writeFailure = error;
      },
    );
    return done;
  }

  /** Why changes are rejected; null: the last one was not. After one that was, a small change shows whether they still are. */
  async whyUnwritable(): Promise<DatabaseUnwritable | null> {
    if (this.unwritable !== null || this.#writeFailure === null) return this.unwritable;
    await this.write(() => this.setFact('last_write', String(Date.now())), null).catch(() => {}); // it is remembered
    return this.#writeFailure;
  }

  /** Makes changes wait that somebody makes; those of the gateway itself go on. @param held says why; null: they need not wait */
  hold(held: () => DatabaseHeld | null): void {
    this.#held = held;
  }

  /** From now on, changes are the caller's unless a write says otherwise. */
  actFor(caller: Caller): void {
    this.#usualCaller = caller;
  }

  /** Calls the listener for each row that a caller changes, in the transaction of the change. */
  onChange(listener: (caller: Caller, change: RowChange) => void): void {
    this.#onChange = listener;
  }

  /** Whether changes have to be {@link noteChange noted}: a caller makes them. */
  get notesChanges(): boolean {
    return this.#caller !== null && this.#onChange !== null;
  }

  noteChange(change: RowChange): void {
    if (this.#caller !== null) this.#onChange?.(this.#caller, change);
  }

  /** Copies the database into a new file while in use. @throws {OperatorError} when it exists or cannot be written */
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

  problems(): string[] {
    const rows = this.all<{ integrity_check: string }>('PRAGMA integrity_check');
    const broken = this.all('PRAGMA foreign_key_check').map((row) => `dangling reference ${JSON.stringify(row)}`);
    return [...rows.map((row) => row.integrity_check).filter((line) => line !== 'ok'), ...broken];
  }

  /** Finishes pending writes, then closes; idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#writes.finish();
    this.#closed = true;
    try {
      if (this.temporary === null) this.#checkpoint();
    } finally {
      this.#statements.clear();
      this.#rawStatements.clear();
      this.engine.close();
    }
  }

  /**
   * Returns pages that deleted rows have left to the disk, a few at a time. A fourth of the database stays free for new rows.
   *
   * @returns whether there is more to return
   */
  giveBackSpace(): boolean {
    if (this.#closed || this.temporary !== null || !this.#hasExcess()) return false;
    try {
      this.engine.exec(`PRAGMA incremental_vacuum(${RETURNED_PAGES})`);
      if (this.#hasExcess()) return true;
      this.#checkpoint();
    } catch (error) {
      // The next check tries again.
      if (!isUnwritable(error) && !isBusy(error)) throw error;
    }
    return false;
  }

  #hasExcess(): boolean {
    const free = this.#numberOf('freelist_count');
    if (free <= MIN_EXCESS_PAGES || this.#numberOf('auto_vacuum') !== INCREMENTAL) return false;
    return free > this.#numberOf('page_count') / 4;
  }

  #numberOf(pragma: 'page_count' | 'freelist_count' | 'auto_vacuum'): number {
    return Number(this.values(`PRAGMA ${pragma}`, [])?.[0]);
  }

  /** Databases of older versions cannot return single pages. They are written again once, when most of one is free. */
  #compact(): void {
    const [pages, free] = [this.#numberOf('page_count'), this.#numberOf('freelist_count')];
    const isWorthwhile = free > MIN_EXCESS_PAGES && free > pages / 2 && this.#numberOf('auto_vacuum') !== INCREMENTAL;
    if (!isWorthwhile || this.older !== 'upgrade' || this.temporary !== null) return;
    try {
      this.engine.exec(`PRAGMA auto_vacuum = ${INCREMENTAL}`);
      this.engine.exec('VACUUM');
    } catch (error) {
      // Another process uses it, or the disk has no room for the copy: a later start does it.
      if (!isUnwritable(error) && !isBusy(error)) throw error;
    }
  }

  #prepareFile(): void {
    this.engine.exec('PRAGMA journal_mode = WAL');
    // FULL, not NORMAL: in WAL mode, NORMAL loses the latest commits in a power cut.
    this.engine.exec('PRAGMA synchronous = FULL');
    this.engine.exec('PRAGMA foreign_keys = ON');
    const [problem] = this.all<{ quick_check: string }>('PRAGMA quick_check(1)');
    if (problem?.quick_check !== 'ok') throw new DatabaseDamaged(this.file, problem?.quick_check ?? 'no answer');
    this.#compact();
    reserveIndex(this.engine, this.file);
    migrate(this.engine, this.file, this.older);
    this.#checkpoint();
    this.#inodes = this.#presentInodes();
    this.engine.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`);
  }

  /** The files of a running gateway must stay: once they are deleted or replaced, all later changes would be lost. */
  #requireFile(): void {
    if (this.temporary !== null || this.#presentInodes() === this.#inodes) return;
    const advice = existsSync(this.file) ? 'restart the gateway, which then uses the new one' : this.#rescue();
    const what = 'database was deleted or replaced while in use';
    throw new DatabaseUnwritable(`the ${what} (${this.file})`, what, advice);
  }

  /** @returns what the operator can do */
  #rescue(): string {
    const rescue = rescueOf(this.file);
    try {
      if (!existsSync(rescue)) this.backup(rescue);
    } catch (error) {
      return `its content cannot be saved (${messageOf(error)}); stop the gateway and put a backup in its place`;
    }
    return `stop the gateway, rename ${rescue}, which has its content, to ${this.file}, and start it again`;
  }

  #presentInodes(): string {
    const inodeOf = (suffix: string) => statSync(this.file + suffix, { throwIfNoEntry: false })?.ino;
    return `${inodeOf('')} ${inodeOf('-wal')}`;
  }

  /** Moves the log into the database. The engine waits for a thousand pages: months of changes that damage would lose. */
  #checkpoint(): void {
    try {
      this.all('PRAGMA wal_checkpoint(TRUNCATE)');
    } catch (error) {
      // The disk is full or another process has the lock: a later checkpoint moves the log.
      if (!isUnwritable(error) && !isBusy(error)) throw error;
    }
  }
}
