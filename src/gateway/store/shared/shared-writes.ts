import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type Libsql from 'libsql';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { DatabaseAway, DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from '../sql/database-problems.ts';
import { MAX_BATCH, type PendingWrite, queued, runInSavepoint, type WriteQueue } from '../sql/group-commit.ts';
import type { Node, Postgres } from './postgres.ts';
import type { Position, Replica, SharedRow } from './replica.ts';
import { type ServingEvents, ServingNode } from './serving-node.ts';

/** How often the shared database is asked for changes of others. */
const POLL_MS = 500;
const RETRY_MS = 50;
/** How often old commits and deletions are forgotten. */
const FORGET_MS = 3_600_000;

interface SharedWritesOptions {
  engine: Libsql.Database;
  file: string;
  replica: Replica;
  postgres: Postgres;
  /** What the replica has; it follows the shared database already. */
  position: Position;
  /** Called when the replica has got rows, before their write resolves. Must not throw. */
  onRows: (rows: readonly SharedRow[]) => void;
  log: Log;
}

/** Waits while another process writes to the replica. @throws the engine's error */
export async function applied(replica: Replica, rows: readonly SharedRow[], position: Position): Promise<void> {
  for (;;) {
    try {
      replica.apply(rows, position);
      return;
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    await delay(RETRY_MS);
  }
}

/**
 * The writes of a gateway whose database is shared. Pending ones are tried out in its replica, undone, and committed there as
 * the rows that they change, if nobody else has committed anything that they have not seen; else they are tried again. Others'
 * commits are applied twice a second.
 */
export class SharedWrites implements WriteQueue {
  #pending: PendingWrite[] = [];
  #position: Position;
  #isRunning = false;
  /** Sends what is pending; null: nothing is. */
  #flushing: Promise<void> | null = null;
  #closed = false;
  /** What is being done with the replica and the connection; one after another. */
  #turn: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #forgetAt = performance.now() + FORGET_MS;
  /** Null: this process only makes changes, for example as a command. */
  #serving: ServingNode | null = null;
  readonly #failures = new Repeats();
  /** Why the shared database does not answer; null: it does. */
  #away: DatabaseAway | null = null;

  constructor(private readonly options: SharedWritesOptions) {
    this.#position = options.position;
  }

  get postgres(): Postgres {
    return this.options.postgres;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Identifies this gateway among those that use the shared database. */
  get node(): string {
    return this.options.replica.node;
  }

  /** The change up to which the replica has everything. */
  get applied(): number {
    return this.#position.version;
  }

  add<T>(work: () => T): Promise<T> {
    return queued(work, (write) => {
      this.#pending.push(write);
      this.#flushing ??= this.#flush();
    });
  }

  /**
   * Makes this a gateway that serves the shared database, and follows the changes of others until {@link stop}.
   * @param renewMs how often it says that it serves, in milliseconds @throws {OperatorError} when another one is in its way
   */
  async serve(self: Pick<Node, 'address' | 'alone' | 'build'>, events: ServingEvents, renewMs: number): Promise<void> {
    const { postgres } = this.options;
    const serving = new ServingNode(postgres, { ...self, id: this.node }, events, renewMs);
    await serving.enter(this.applied);
    this.#serving = serving;
    this.#followSoon();
  }

  #followSoon(): void {
    this.#timer = setTimeout(async () => {
      await this.#inTurn(() => this.#follow()).catch((error: unknown) => {
        if (!(error instanceof DatabaseAway)) this.#reportNotApplied(error);
      });
      if (!this.#closed) this.#followSoon();
    }, POLL_MS);
  }

  #reportNotApplied(err: unknown): void {
    const times = this.#failures.timesDue('apply');
    if (times !== null) this.options.log.error({ err, times }, 'changes of the shared database not applied');
  }

  async #follow(): Promise<void> {
    await this.#catchUp();
    await this.#serving?.renewWhenDue(this.applied);
    if (performance.now() < this.#forgetAt) return;
    this.#forgetAt = performance.now() + FORGET_MS;
    await this.options.postgres.forget();
  }

  /** Applies what others have changed, and learns who they are: one may just have begun to serve. @throws {DatabaseAway} */
  refresh(): Promise<void> {
    return this.#inTurn(() => this.#follow());
  }

  /** Equal for all copies that have the same. */
  digest(): string {
    return this.options.replica.digest();
  }

  /** Makes the copy a database of its own, which keeps everything. */
  detach(): void {
    this.options.replica.end();
  }

  /** Finishes what is pending, makes place for another gateway, and ends the connection. */
  async stop(): Promise<void> {
    await this.#flushing;
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#turn;
    const { postgres, log } = this.options;
    await this.#serving?.leave().catch((err: unknown) => log.warn({ err }, 'shared database not left'));
    await postgres.close();
  }

  finish(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const write of this.#pending.splice(0)) write.reject(new Error('the database is closed'));
  }

  async #flush(): Promise<void> {
    // Requests parsed in this turn of the event loop share the commit.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#pending.length > 0 && !this.#closed) {
      const batch = this.#pending.splice(0, MAX_BATCH);
      await this.#inTurn(() => this.#commit(batch)).catch((error: unknown) => {
        const reason = isUnwritable(error) ? DatabaseUnwritable.because(error, this.options.file) : error;
        for (const write of batch) write.reject(reason);
      });
    }
    // Synchronous with the check above, so that later writes are sent by another call.
    this.#flushing = null;
  }

  async #commit(batch: readonly PendingWrite[]): Promise<void> {
    // It is asked twice a second whether it answers again.
    if (this.#away && this.#serving) throw new DatabaseAway(messageOf(this.#away.cause), this.#away.cause, true);
    const busy = new DatabaseBusy(this.options.file, null);
    let delayed: Error = busy;
    for (let left = batch; left.length > 0; left = this.#notOverdue(left, delayed)) {
      const tried = await this.#tryOut(left);
      delayed = tried === null ? busy : new DatabaseAway('others were faster for 5 s', null, true);
      if (tried === null) continue;
      const { rows, done } = tried;
      const position = rows.length === 0 ? this.#position : await this.#send(rows);
      if (position === null) {
        await this.#catchUp();
        left = done;
        continue;
      }
      // It is durable. A copy that cannot be written gets it later, and accepts no further change before.
      if (rows.length > 0) await this.#apply(rows, position).catch((error: unknown) => this.#reportNotApplied(error));
      for (const write of done) write.settle();
      return;
    }
  }

  /** Those whose work has failed are rejected. @returns null when another process is writing to the replica */
  async #tryOut(batch: readonly PendingWrite[]): Promise<{ rows: SharedRow[]; done: PendingWrite[] } | null> {
    const done: PendingWrite[] = [];
    this.#isRunning = true;
    try {
      const rows = this.options.replica.tryOut(() => {
        for (const write of batch) if (runInSavepoint(this.options.engine, write)) done.push(write);
      });
      return { rows, done };
    } catch (error) {
      if (!isBusy(error)) throw error;
    } finally {
      this.#isRunning = false;
    }
    await delay(RETRY_MS);
    return null;
  }

  #notOverdue(writes: readonly PendingWrite[], reason: Error): readonly PendingWrite[] {
    const now = performance.now();
    for (const write of writes) if (write.deadline <= now) write.reject(this.#away ?? reason);
    return writes.filter(({ deadline }) => deadline > now);
  }

  /** @returns null when somebody else has committed since; @throws {DatabaseAway} */
  async #send(rows: readonly SharedRow[]): Promise<Position | null> {
    const seen = this.#position;
    const batch = randomUUID();
    const send = async () => {
      const version = await this.options.postgres.commit(seen, batch, rows);
      return version === null ? null : { cluster: seen.cluster, version, batch };
    };
    try {
      return await this.#answered(send());
    } catch (error) {
      // The answer may be all that was lost. The same batch is not committed twice.
      if (error instanceof DatabaseAway) return await this.#answered(send());
      throw error;
    }
  }

  async #catchUp(): Promise<void> {
    const { postgres, replica } = this.options;
    const { rows, position } = await this.#answered(postgres.rowsAfter(this.#position.version));
    if (position?.batch === this.#position.batch) return;
    if (position !== null && position.version > this.#position.version && (await postgres.continues(this.#position))) {
      await this.#apply(rows, position);
      return;
    }
    // PostgreSQL was put back to an older state, or this gateway was away for too long.
    const all = await this.#answered(postgres.rowsAfter(0));
    if (all.position === null || all.position.cluster !== this.#position.cluster)
      throw new DatabaseUnwritable(
        'it is not the shared database any more that this gateway has used: restore that one, or restart the gateway',
        'shared database was replaced',
      );
    this.options.log.warn({ commit: all.position.version }, 'everything copied from the shared database');
    await this.#apply(replica.difference(all.rows), all.position);
    this.#serving?.enterAgain();
  }

  async #apply(rows: readonly SharedRow[], position: Position): Promise<void> {
    await applied(this.options.replica, rows, position);
    this.#position = position;
    this.options.onRows(rows);
  }

  async #answered<T>(question: Promise<T>): Promise<T> {
    const { log } = this.options;
    try {
      const answer = await question;
      if (this.#away) log.info('shared database answers again');
      this.#away = null;
      return answer;
    } catch (error) {
      if (error instanceof DatabaseAway) {
        if (!this.#away)
          log.warn(
            { reason: messageOf(error.cause) },
            'shared database does not answer: existing accounts keep working, changes are rejected',
          );
        this.#away = error;
      }
      throw error;
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}
