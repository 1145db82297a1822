import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type Libsql from 'libsql';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { DatabaseAway, DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from '../sql/database-problems.ts';
import { MAX_BATCH, type PendingWrite, queued, runInSavepoint, type WriteQueue } from '../sql/group-commit.ts';
import type { Node, Postgres } from './postgres.ts';
import type { Origin, Position, Replica, SharedRow } from './replica.ts';
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
  /** Why the shared database could not be used so far; null: it could. */
  away: DatabaseAway | null;
  /** Called when the replica has got rows, before their write resolves. Must not throw. */
  onRows: (rows: readonly SharedRow[]) => void;
  /** Called with errors of the replica's engine. */
  onError: (error: unknown) => void;
  log: Log;
}

/** @param before what this gateway has had of it */
export function logOlderState(log: Log, { version: commit }: Position, before: Position): void {
  log.warn(
    { commit, commit_before: before.version },
    'shared database was put back to an older state: what came after it is gone',
  );
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
  /** Why the shared database cannot be used; null: it can. */
  #away: DatabaseAway | null;

  constructor(private readonly options: SharedWritesOptions) {
    this.#position = options.position;
    this.#away = options.away;
    if (this.#away) this.#logAway(this.#away);
  }

  get postgres(): Postgres {
    return this.options.postgres;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  get away(): string | null {
    return this.#away?.reason ?? null;
  }

  /** Identifies this gateway among those that use the shared database. */
  get node(): string {
    return this.options.replica.node;
  }

  /** What the copy is a copy of. */
  get origin(): Origin | null {
    return this.options.replica.origin;
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
    // Else it enters later: a start does not wait for it again.
    if (this.#away === null) await serving.enter(this.applied);
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
    this.options.onError(err);
    const times = this.#failures.timesDue('apply');
    if (times !== null) this.options.log.error({ err, times }, 'changes of the shared database not applied');
  }

  async #follow(): Promise<void> {
    await this.#answered(this.#catchUpAndRenew());
    if (performance.now() < this.#forgetAt) return;
    this.#forgetAt = performance.now() + FORGET_MS;
    await this.options.postgres.forget();
  }

  /** It answers again when it can be written again, not only read. */
  async #catchUpAndRenew(): Promise<void> {
    await this.#catchUp();
    await this.#serving?.renewWhenDue(this.applied, this.#away !== null);
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
        this.options.onError(error);
        const reason = isUnwritable(error) ? DatabaseUnwritable.because(error, this.options.file) : error;
        for (const write of batch) write.reject(reason);
      });
    }
    // Synchronous with the check above, so that later writes are sent by another call.
    this.#flushing = null;
  }

  async #commit(batch: readonly PendingWrite[]): Promise<void> {
    // It is asked twice a second whether it answers again.
    if (this.#away && this.#serving) throw new DatabaseAway(this.#away.reason, this.#away.cause, true);
    const busy = new DatabaseBusy(this.options.file, null);
    let delayed: Error = busy;
    for (let left = batch; left.length > 0; left = this.#notOverdue(left, delayed)) {
      const tried = await this.#tryOut(left);
      delayed = tried === null ? busy : new DatabaseAway('others were faster for 5 s', null, true);
      if (tried === null) continue;
      const { rows, done } = tried;
      const position = rows.length === 0 ? this.#position : await this.#send(rows);
      if (position === null) {
        await this.#answered(this.#catchUp());
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
      if (!(error instanceof DatabaseAway) || error.isUntried) throw error;
    }
    try {
      // The answer may be all that was lost. The same batch is not committed twice.
      return await this.#answered(send());
    } catch (error) {
      throw error instanceof DatabaseAway ? new DatabaseAway(error.reason, error.cause) : error;
    }
  }

  async #catchUp(): Promise<void> {
    const { postgres, replica } = this.options;
    const { rows, position } = await postgres.rowsAfter(this.#position.version);
    if (position?.batch === this.#position.batch) return;
    const relation = await postgres.relationTo(this.#position);
    if (position !== null && position.version > this.#position.version && relation === 'past') {
      await this.#apply(rows, position);
      return;
    }
    // PostgreSQL was put back to an older state, or this gateway was away for too long.
    const all = await postgres.rowsAfter(0);
    if (all.position === null || all.position.cluster !== this.#position.cluster)
      throw new DatabaseUnwritable(
        'it is not the shared database any more that this gateway has used',
        'shared database was replaced',
        'restore that one, or restart the gateway',
      );
    if (relation === 'forgotten')
      this.options.log.warn({ commit: all.position.version }, 'everything copied from the shared database');
    else logOlderState(this.options.log, all.position, this.#position);
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
        if (!this.#away) this.#logAway(error);
        this.#away = error;
      }
      throw error;
    }
  }

  #logAway({ reason }: DatabaseAway): void {
    this.options.log.warn(
      { reason },
      'shared database does not answer: existing accounts keep working, changes are rejected',
    );
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}
