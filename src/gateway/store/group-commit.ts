import type Libsql from 'libsql';
import { DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from './database-problems.ts';

/** How long a write waits for another process, and how long it lets everything else go on between two attempts. */
const WRITE_TIMEOUT_MS = 5_000;
const BUSY_PAUSE_MS = 30;
/** Writes answered by one commit; bounds how long the event loop is held. */
const MAX_BATCH = 256;

interface PendingWrite {
  /** When it gives up waiting for another process, on the scale of `performance.now()`. */
  deadline: number;
  run: () => void;
  settle: () => void;
  reject: (error: unknown) => void;
}

/**
 * The writes that wait. Those that arrive together share one commit, each in a savepoint of its own, and each is
 * answered only when the commit is on disk.
 */
export class GroupCommit {
  readonly #engine: Libsql.Database;
  readonly #file: string;
  readonly #committed: () => void;
  #pending: PendingWrite[] = [];
  /** Stops the flush that is due; null when none is. */
  #cancelFlush: (() => void) | null = null;
  #isRunning = false;

  /**
   * @param file the database's path, for errors
   * @param committed called after every commit, before its writes are answered; must not throw
   */
  constructor(engine: Libsql.Database, file: string, committed: () => void) {
    this.#engine = engine;
    this.#file = file;
    this.#committed = committed;
  }

  /** Whether a transaction is under way: what changes now is part of it. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Has `work` run as a transaction; what it promises is said at `Database.write`. */
  add<T>(work: () => T): Promise<T> {
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

  /** Runs what waits, now; nothing may be added afterwards. */
  finish(): void {
    while (this.#pending.length > 0) this.#flush();
    this.#cancelFlush?.();
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
    this.#isRunning = true;
    try {
      this.#engine.exec('BEGIN IMMEDIATE');
      for (const write of batch) {
        if (this.#runInSavepoint(write)) done.push(write);
      }
      this.#engine.exec('COMMIT');
    } catch (error) {
      this.#rollBack();
      if (isBusy(error)) this.#wait(batch, error);
      else this.#fail(batch, error);
      return;
    } finally {
      this.#isRunning = false;
      if (this.#pending.length > 0 && !this.#cancelFlush) this.#flushSoon();
    }
    this.#committed();
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
}
