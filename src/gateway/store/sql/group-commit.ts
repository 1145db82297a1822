import type Libsql from 'libsql';
import { DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from './database-problems.ts';

/** How long a write waits for another process, and the pause between its attempts. */
const WRITE_TIMEOUT_MS = 5_000;
const BUSY_PAUSE_MS = 30;
/** Writes in one commit; limits how long a commit blocks the event loop. */
export const MAX_BATCH = 256;

/** Rows of a table that have a value in a column. */
export interface RowsRead {
  readonly table: string;
  readonly column: string;
  readonly value: string;
}

/** Where a database's writes go. */
export interface WriteQueue {
  /** Whether a transaction runs now: only then may rows be changed. */
  readonly isRunning: boolean;
  /** Why the shared database cannot be used now; null: it can. Undefined: there is none. */
  readonly away?: string | null;
  /** Queues `work` as a transaction; see `Database.write`, and with `reads` `Database.writeApart`. */
  add<T>(work: () => T, reads?: readonly RowsRead[]): Promise<T>;
  /** Runs all pending writes now, if that is possible, and rejects the others; nothing may be added afterwards. */
  finish(): void;
}

export interface PendingWrite {
  /** Deadline of waiting for another process, in terms of `performance.now()`. */
  deadline: number;
  /** What decides about it besides the rows that it changes; null: anything may. */
  reads: readonly RowsRead[] | null;
  run: () => void;
  settle: () => void;
  reject: (error: unknown) => void;
}

/** The queue of writes. Those that arrive together share a commit, each in a savepoint; they resolve when it is on disk. */
export class GroupCommit implements WriteQueue {
  #pending: PendingWrite[] = [];
  /** Cancels the scheduled flush; null without one. */
  #cancelFlush: (() => void) | null = null;
  #isRunning = false;

  /**
   * @param requireFile throws when the file was replaced
   * @param committed called before writes resolve, must not throw
   */
  constructor(
    private readonly engine: Libsql.Database,
    private readonly file: string,
    private readonly requireFile: () => void,
    private readonly committed: () => void,
  ) {}

  get isRunning(): boolean {
    return this.#isRunning;
  }

  add<T>(work: () => T): Promise<T> {
    return queued(work, (write) => {
      this.#pending.push(write);
      // Requests parsed in this turn of the event loop share the commit.
      if (!this.#cancelFlush) this.#flushSoon();
    });
  }

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
      this.requireFile();
      this.engine.exec('BEGIN IMMEDIATE');
      for (const write of batch) {
        if (runInSavepoint(this.engine, write)) done.push(write);
      }
      this.engine.exec('COMMIT');
    } catch (error) {
      this.#rollBack();
      if (isBusy(error)) this.#wait(batch, error);
      else this.#fail(batch, error);
      return;
    } finally {
      this.#isRunning = false;
      if (this.#pending.length > 0 && !this.#cancelFlush) this.#flushSoon();
    }
    this.committed();
    for (const write of done) write.settle();
  }

  /** Another process has the lock: retry later, until the deadline of a write. */
  #wait(batch: PendingWrite[], cause: unknown): void {
    const now = performance.now();
    for (const write of batch) {
      if (write.deadline <= now) write.reject(new DatabaseBusy(this.file, cause));
    }
    this.#pending.unshift(...batch.filter(({ deadline }) => deadline > now));
    const timer = setTimeout(() => this.#flush(), BUSY_PAUSE_MS);
    this.#cancelFlush = () => clearTimeout(timer);
  }

  #fail(batch: readonly PendingWrite[], error: unknown): void {
    const reason = isUnwritable(error) ? DatabaseUnwritable.because(error, this.file) : error;
    for (const write of batch) write.reject(reason);
  }

  #rollBack(): void {
    // A full or failing disk may already have ended the transaction.
    if (this.engine.inTransaction) this.engine.exec('ROLLBACK');
  }
}

/** @returns what `work` returns, once the write that is passed to `add` has been settled */
export function queued<T>(
  work: () => T,
  add: (write: PendingWrite) => void,
  reads: readonly RowsRead[] | null = null,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let value: T;
    add({
      deadline: performance.now() + WRITE_TIMEOUT_MS,
      reads,
      run: () => {
        value = work();
      },
      settle: () => resolve(value),
      reject,
    });
  });
}

/** Whether the work succeeded; if not, its changes are rolled back and its promise is rejected. */
export function runInSavepoint(engine: Libsql.Database, write: PendingWrite): boolean {
  engine.exec('SAVEPOINT request');
  try {
    write.run();
  } catch (error) {
    // A full disk ends the whole transaction.
    if (isUnwritable(error)) throw error;
    engine.exec('ROLLBACK TO request');
    engine.exec('RELEASE request');
    write.reject(error);
    return false;
  }
  engine.exec('RELEASE request');
  return true;
}
