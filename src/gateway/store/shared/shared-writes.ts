import { randomUUID } from 'node:crypto';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import type Libsql from 'libsql';
import { messageOf } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { Repeats } from '../../../lib/log/repeats.ts';
import { DatabaseAway, DatabaseBusy, DatabaseUnwritable, isBusy, isUnwritable } from '../sql/database-problems.ts';
import {
  MAX_BATCH,
  type PendingWrite,
  queued,
  type RowsRead,
  runInSavepoint,
  type WriteQueue,
} from '../sql/group-commit.ts';
import { type CatchUp, fewOf, MOST_AT_ONCE, RETRY_MS, type Step, untilFree } from './catch-up.ts';
import type { Reason } from './incoming-rows.ts';
import type { CommitPage, Node, Postgres } from './postgres.ts';
import { NOTHING_YET, type Origin, type Replica } from './replica.ts';
import { type Commit, commitId, type Loss, sinceOf } from './replica-past.ts';
import type { Position, SharedRow } from './replica-tables.ts';
import { type ServingEvents, ServingNode } from './serving-node.ts';

/** How often the shared database is asked for changes of others. */
const POLL_MS = 500;
/** After so long, changes are known to wait for what this gateway lacks. */
const BEHIND_MS = 2_000;
/** For so long, a copy may be unwritable before this gateway ends: revocations wait for gateways a little longer. */
const UNWRITABLE_MS = 1_000;
/** For so long, a gateway may be silent for a copy of an older state. */
const COPY_MS = 1_000;
/** After so many attempts before which others have committed, a write gets its turn: they wait for it. */
const LOSSES = 2;
/** For so long, what is committed already is waited for. */
const OWN_MS = 5_000;
/** A copy that has been compared with the shared database so long ago may lack something. */
const STALE_MS = 2_000;
/** How often old commits and deletions are forgotten. */
const FORGET_MS = 3_600_000;

/** A commit of this gateway. */
interface Made {
  readonly commit: Commit;
  readonly position: Position;
}

/** What writes change, of those whose work has not failed. */
interface Tried {
  readonly rows: readonly SharedRow[];
  readonly done: readonly PendingWrite[];
}

/** A commit that may have been made. */
interface Sent {
  /** Up to where this gateway had everything. */
  readonly seen: Position;
  /** Of the batch. */
  readonly id: string;
  readonly rows: readonly SharedRow[];
}

interface SharedWritesOptions {
  engine: Libsql.Database;
  file: string;
  replica: Replica;
  postgres: Postgres;
  catchUp: CatchUp;
  /** What the replica has; it follows the shared database already. */
  position: Position;
  /** Why the shared database could not be used so far; null: it could. */
  away: DatabaseAway | null;
  /** When the copy was written before it was opened, in Unix milliseconds. */
  writtenAt: number;
  /** Called when the replica has got rows, before their write resolves. Must not throw. */
  onRows: (rows: readonly Pick<SharedRow, 'tbl' | 'key'>[]) => void;
  /** Called with errors of the replica's engine. */
  onError: (error: unknown) => void;
  /** Called when the replica cannot be written for a while: what it has gets older. Omitted: this is a command. */
  onUnwritable: ((error: DatabaseUnwritable) => void) | undefined;
  log: Log;
}

/** Logs why more than changes was copied. @param before what this gateway has had @param loss the newest one */
export function logWhole(
  log: Log,
  reason: Reason,
  { version: commit }: Position,
  { before, loss }: { before: Position; loss: Loss | null },
): void {
  if (reason === 'older')
    log.warn(
      {
        commit,
        commit_before: before.version,
        commits_lost: loss && loss.last - loss.after,
        lost_since: loss && sinceOf(loss),
      },
      'shared database was put back to an older state: what came after it is gone',
    );
  else if (reason === 'differs') log.warn({ commit }, 'copy differed from the shared database: mended');
  else if (reason !== 'behind') log.warn({ commit }, 'everything copied from the shared database');
}

/** Waits while another process writes to the replica. @throws the engine's error */
export async function applied(replica: Replica, rows: readonly SharedRow[], position: Position): Promise<void> {
  await untilFree(() => replica.apply(rows, position));
}

/** A commit may have been made. @throws in any case */
function asUnknown(error: unknown): never {
  throw error instanceof DatabaseAway ? new DatabaseAway(error.reason, error.cause) : error;
}

function outrun(): DatabaseAway {
  return new DatabaseAway('others were faster for 5 s', null, true);
}

function stillBehind(): DatabaseAway {
  return new DatabaseAway('this gateway is still fetching what it lacks', null, true);
}

/**
 * The writes of a gateway whose database is shared. Pending ones are tried out in its replica, undone, and committed there as
 * the rows that they change, if nobody else has committed anything that they have not seen; else they are tried again. Others'
 * commits are applied twice a second; writes wait while that takes longer.
 */
export class SharedWrites implements WriteQueue {
  #pending: PendingWrite[] = [];
  /** How often in turn others were faster than the writes that wait for their order. */
  #losses = 0;
  /** Whether writes that do not wait for it were sent last. */
  #wasApart = false;
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
  /** Since when more than a few changes are being fetched and applied; null: they are not. */
  #behindSince: number | null = null;
  /** Whether the shared database may not be the one that the copy has followed so far: it was put back to an older state. */
  #isOfAnother = false;
  /** Whether that may not know this gateway. */
  #mustEnter = false;
  /** Since when the replica cannot be written; null: it can. */
  #unwritableSince: number | null = null;
  /** The others are told what was lost; null: they are not. */
  #saying: Promise<void> | null = null;
  /** What has arrived is being applied; null: it is not. */
  #applying: Promise<void> | null = null;
  /** Why the shared database cannot be used; null: it can. */
  #away: DatabaseAway | null;
  /** When the copy had everything. */
  #currentAt = performance.now();
  /** The gateway through which the shared database is reached; null: it is on the direct way. */
  #through: string | null = null;

  constructor(private readonly options: SharedWritesOptions) {
    this.#position = options.position;
    this.#away = options.away;
    if (this.#away) this.#currentAt -= Math.max(0, Date.now() - options.writtenAt);
    if (this.#away) this.#logAway(this.#away);
  }

  get postgres(): Postgres {
    return this.options.postgres;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  get away(): string | null {
    if (this.#away) return this.#away.reason;
    const isBehindLong = this.#behindSince !== null && performance.now() - this.#behindSince > BEHIND_MS;
    return isBehindLong ? stillBehind().reason : null;
  }

  /** The way to the shared database through another gateway; null: it is direct, or there is none. */
  get detour(): Postgres['detour'] {
    return this.#away ? null : this.options.postgres.detour;
  }

  /** How old the copy may be, in seconds; null: it is current. */
  get staleSeconds(): number | null {
    const ms = performance.now() - this.#currentAt;
    return ms < STALE_MS ? null : Math.round(ms / 1000);
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

  add<T>(work: () => T, reads: readonly RowsRead[] | null = null): Promise<T> {
    const add = (write: PendingWrite) => {
      this.#pending.push(write);
      this.#flushing ??= this.#flush();
    };
    return queued(work, add, reads);
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

  #followSoon(ms = POLL_MS): void {
    this.#timer = setTimeout(async () => {
      const hasMore = await this.#inTurn(() => this.#follow()).catch((error: unknown) => {
        if (!(error instanceof DatabaseAway)) this.#reportNotApplied(error);
        return false;
      });
      if (!this.#closed) this.#followSoon(hasMore ? 0 : POLL_MS);
    }, ms);
  }

  #reportNotApplied(err: unknown): void {
    const { file, onError, onUnwritable } = this.options;
    onError(err);
    if (isUnwritable(err)) this.#unwritableSince ??= performance.now();
    if (this.#isUnwritableLong) onUnwritable?.(DatabaseUnwritable.because(err, file));
    const times = this.#failures.timesDue('apply');
    if (times !== null) this.options.log.error({ err, times }, 'changes of the shared database not applied');
  }

  get #isUnwritableLong(): boolean {
    return this.#unwritableSince !== null && performance.now() - this.#unwritableSince > UNWRITABLE_MS;
  }

  /** @returns whether there is more to fetch */
  async #follow(): Promise<boolean> {
    const hasMore = await this.#answered(this.#catchUpAndRenew());
    if (performance.now() < this.#forgetAt) return hasMore;
    this.#forgetAt = performance.now() + FORGET_MS;
    await this.options.postgres.forget();
    return hasMore;
  }

  /** It answers again when it can be written again, not only read. */
  async #catchUpAndRenew(): Promise<boolean> {
    const hasMore = await this.#catchUp();
    if (this.#mustEnter) this.#serving?.enterAgain();
    this.#mustEnter = false;
    const loss = this.#dueLoss;
    if (loss) this.#say(loss);
    // The others wait for what it has to say.
    const applied = this.#isOfAnother || loss ? NOTHING_YET : this.applied;
    await this.#serving?.renewWhenDue(applied, this.#away !== null);
    return hasMore;
  }

  /** Whether something was lost that the others do not know of yet. */
  get hasUnsaidLoss(): boolean {
    return this.options.replica.past.unsaid !== null;
  }

  /** What was lost, once the copy has the older state. */
  get #dueLoss(): Loss | null {
    if (this.#isOfAnother || this.#behindSince !== null) return null;
    const loss = this.options.replica.past.unsaid;
    const { version, id } = commitId(this.#position);
    return loss?.base.version === version && loss.base.id === id ? null : loss;
  }

  #say(loss: Loss): void {
    const said = this.#saying === null && !this.#closed ? this.#serving?.say(loss) : undefined;
    if (!said) return;
    const end = () => {
      this.#saying = null;
    };
    const { replica, log } = this.options;
    this.#saying = said
      .then(() => untilFree(() => replica.past.said(loss)))
      .catch((error: unknown) => {
        // It is said again with the next changes.
        if (error instanceof DatabaseAway) return;
        const times = this.#failures.timesDue('loss');
        if (times !== null) log.warn({ reason: messageOf(error), times }, 'lost commits not recorded');
      })
      .finally(end);
  }

  /**
   * Applies what others have changed, and learns who they are: one may just have begun to serve.
   * @throws {DatabaseAway} also when that takes longer
   */
  async refresh(): Promise<void> {
    await this.#inTurn(() => this.#follow());
    if (this.#behindSince !== null) throw stillBehind();
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
    await this.#saying;
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#turn;
    await this.#applying;
    const { postgres, catchUp, log } = this.options;
    catchUp.close();
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
      if (this.#behindSince !== null) {
        await this.#waitBehind();
        continue;
      }
      const batch = this.#takeBatch();
      const left = await this.#inTurn(() => this.#commit(batch)).catch((error: unknown) => {
        this.#reject(batch, error);
        return [];
      });
      this.#pending.unshift(...left);
    }
    // Synchronous with the check above, so that later writes are sent by another call.
    this.#flushing = null;
  }

  /** Of one kind, and of each kind in turn: those that stand apart do not wait for attempts of the others. */
  #takeBatch(): PendingWrite[] {
    const isApart = ({ reads }: PendingWrite) => reads !== null;
    const hasOther = this.#pending.some((write) => isApart(write) !== this.#wasApart);
    if (hasOther) this.#wasApart = !this.#wasApart;
    const batch = this.#pending.filter((write) => isApart(write) === this.#wasApart).slice(0, MAX_BATCH);
    const taken = new Set(batch);
    this.#pending = this.#pending.filter((write) => !taken.has(write));
    return batch;
  }

  #reject(writes: readonly PendingWrite[], error: unknown): void {
    this.options.onError(error);
    const reason = isUnwritable(error) ? DatabaseUnwritable.because(error, this.options.file) : error;
    for (const write of writes) write.reject(reason);
  }

  /** Fetches more of what this gateway lacks, or waits until it is applied. Writes that have waited for too long are rejected. */
  async #waitBehind(): Promise<void> {
    this.#pending = [...this.#notOverdue(this.#pending, stillBehind())];
    if (this.#pending.length === 0) return;
    const work = this.#applying ? Promise.race([this.#applying, delay(RETRY_MS)]) : this.#inTurn(() => this.#follow());
    await work.catch((error: unknown) => this.#reject(this.#pending.splice(0), error));
  }

  /** @returns what has to be tried again, once this gateway has what it lacks */
  async #commit(batch: readonly PendingWrite[]): Promise<readonly PendingWrite[]> {
    if (this.#behindSince !== null) return batch;
    // It is asked twice a second whether it answers again.
    if (this.#away && this.#serving) throw new DatabaseAway(this.#away.reason, this.#away.cause, true);
    if (batch.every(({ reads }) => reads !== null)) return this.#commitApart(batch);
    return this.#losses < LOSSES ? this.#commitNext(batch) : this.#commitInTurn(batch);
  }

  /** Commits, unless others have committed anything that this gateway has not seen. @returns as {@link #commit} */
  async #commitNext(batch: readonly PendingWrite[]): Promise<readonly PendingWrite[]> {
    const tried = await this.#tryOut(batch);
    if (tried === null) return this.#notOverdue(batch, this.#busy);
    const { rows, done } = tried;
    if (rows.length > 0) {
      const sent = { seen: this.#position, id: randomUUID(), rows };
      const made = await this.#send(
        () => this.#commitOf(sent),
        () => sent,
      );
      if (made === null) return this.#lost(done);
      await this.#applyOwn(rows, made);
    }
    return this.#done(done);
  }

  /** Commits while others wait. @returns as {@link #commit} */
  async #commitInTurn(batch: readonly PendingWrite[]): Promise<readonly PendingWrite[]> {
    const { postgres, catchUp } = this.options;
    const id = randomUUID();
    const turn: { tried: Tried | null; sent: Sent | null } = { tried: null, sent: null };
    const commit = () =>
      postgres.commitInTurn(this.#position, id, catchUp.pageSize, async (page) => {
        if (!(await this.#applyPage(page))) return null;
        turn.tried = await this.#tryOut(batch);
        if (turn.tried === null || turn.tried.rows.length === 0) return null;
        turn.sent = { seen: this.#position, id, rows: turn.tried.rows };
        return turn.sent;
      });
    const made = await this.#send(commit, () => turn.sent);
    if (turn.tried === null) {
      await this.#answered(this.#catchUp());
      return this.#notOverdue(batch, this.#busy);
    }
    const { rows, done } = turn.tried;
    if (made !== null) await this.#applyOwn(rows, made);
    else if (rows.length > 0) return this.#lost(done);
    return this.#done(done);
  }

  /** Commits, unless others have changed what decides about these writes. @returns as {@link #commit} */
  async #commitApart(batch: readonly PendingWrite[]): Promise<readonly PendingWrite[]> {
    const tried = await this.#tryOut(batch);
    if (tried === null) return this.#notOverdue(batch, this.#busy);
    const { rows, done } = tried;
    if (rows.length > 0) {
      const version = await this.#sendApart(
        rows,
        done.flatMap(({ reads }) => reads ?? []),
      );
      if (version === null) return this.#notOverdue(done, outrun());
      await this.#untilApplied(version);
    }
    for (const write of done) write.settle();
    return [];
  }

  /** @returns the number of the commit; null: it must be tried again @throws {DatabaseAway} */
  async #sendApart(rows: readonly SharedRow[], reads: readonly RowsRead[]): Promise<number | null> {
    const { postgres, catchUp } = this.options;
    const id = randomUUID();
    let page: CommitPage;
    try {
      page = await this.#answered(postgres.commitApart(this.#position, id, { rows, reads }, catchUp.pageSize));
    } catch (error) {
      if (!(error instanceof DatabaseAway) || error.isUntried) throw error;
      // The same batch is not sent again: it may still be under way. Of it and the next attempt, only the first one is committed.
      return (await this.#answered(postgres.made(id)).catch(asUnknown))?.version ?? null;
    }
    const version = page.head?.batch === id ? page.head.version : null;
    try {
      if (!(await this.#applyPage(page))) await this.#answered(this.#catchUp());
    } catch (error) {
      if (version === null) throw error;
      // It is fetched again.
      if (!(error instanceof DatabaseAway)) this.#reportNotApplied(error);
    }
    return version;
  }

  /** Waits until the copy has a commit of this gateway, as {@link #applyOwn} does. @throws {DatabaseAway} */
  async #untilApplied(version: number): Promise<void> {
    for (const end = performance.now() + OWN_MS; this.applied < version; ) {
      if (performance.now() > end) asUnknown(stillBehind());
      try {
        await (this.#applying ?? this.#answered(this.#catchUp()));
      } catch (error) {
        if (error instanceof DatabaseAway) asUnknown(error);
        this.#reportNotApplied(error);
        if (this.#isUnwritableLong) return;
        await delay(RETRY_MS);
      }
    }
  }

  get #busy(): DatabaseBusy {
    return new DatabaseBusy(this.options.file, null);
  }

  #done(writes: readonly PendingWrite[]): [] {
    this.#losses = 0;
    for (const write of writes) write.settle();
    return [];
  }

  /** Others were faster. @returns as {@link #commit} */
  async #lost(writes: readonly PendingWrite[]): Promise<readonly PendingWrite[]> {
    this.#losses += 1;
    await this.#answered(this.#catchUp());
    return this.#behindSince === null ? this.#notOverdue(writes, outrun()) : writes;
  }

  /** Those whose work has failed are rejected. @returns null when another process is writing to the replica */
  async #tryOut(batch: readonly PendingWrite[]): Promise<Tried | null> {
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

  /**
   * @param commit may fail after it was made @param sent what was, null: nothing @returns null when somebody else has committed
   * since @throws {DatabaseAway}
   */
  async #send(commit: () => Promise<Commit | null>, sent: () => Sent | null): Promise<Made | null> {
    const made = async (answer: Promise<Commit | null>) => {
      const [commit, batch] = [await answer, sent()];
      return commit && batch && { commit, position: { ...batch.seen, version: commit.version, batch: batch.id } };
    };
    let lost: Sent | null;
    try {
      return await this.#answered(made(commit()));
    } catch (error) {
      lost = sent();
      if (!(error instanceof DatabaseAway) || error.isUntried || lost === null) throw error;
    }
    // The answer may be all that was lost. The same batch is not committed twice.
    return await this.#answered(made(this.#commitOf(lost))).catch(asUnknown);
  }

  #commitOf({ seen, id, rows }: Sent): Promise<Commit | null> {
    return this.options.postgres.commit(seen, id, rows);
  }

  /** Applies a page of changes, if that is little and all that this gateway lacks. @returns whether it was */
  async #applyPage(page: CommitPage): Promise<boolean> {
    const few = fewOf(this.#position, page);
    if (few === null) return false;
    await untilFree(() => this.options.replica.past.note(page.commits));
    if (few.position.batch !== this.#position.batch) await this.#apply(few.rows, few.position);
    return true;
  }

  /** @returns whether there is more to fetch */
  async #catchUp(): Promise<boolean> {
    if (this.#applying) return false;
    const askedAt = performance.now();
    const step = await this.options.catchUp.step(this.#position);
    if (step.kind === 'few') await this.#apply(step.rows, step.position);
    if (step.kind === 'few' || step.kind === 'current') {
      this.#currentAt = askedAt;
      this.#behindSince = null;
      this.#isOfAnother = false;
    } else this.#behindSince ??= performance.now();
    if (step.kind === 'more' && step.begun === 'behind') await this.#revokeFirst();
    else if (step.kind === 'more' && step.begun) return this.#copyWhole();
    if (step.kind === 'complete') this.#applyArrived(step).catch((error: unknown) => this.#reportNotApplied(error));
    return step.kind === 'more';
  }

  /** What was revoked is refused here before everything else has come. It comes again with that, so nothing is lost by a failure. */
  async #revokeFirst(): Promise<void> {
    const { replica, postgres, onRows } = this.options;
    const revoked = await postgres.revokedSince(this.#position.version);
    for (let first = 0; first < revoked.length; first += MOST_AT_ONCE) {
      const rows = revoked.slice(first, first + MOST_AT_ONCE);
      await applied(replica, rows, this.#position);
      onRows(rows);
      await nextTurn();
    }
  }

  /** This gateway enters the older state again when it has it, or when that takes long. @returns whether there is more to fetch */
  async #copyWhole(): Promise<boolean> {
    this.#isOfAnother = true;
    this.#mustEnter = true;
    const end = performance.now() + COPY_MS;
    let step: Step;
    do step = await this.options.catchUp.step(this.#position);
    while (step.kind === 'more' && performance.now() < end);
    if (step.kind === 'complete') await this.#applyArrived(step);
    return step.kind === 'more';
  }

  /**
   * Applies a durable commit of this gateway before it is answered: who has made it may ask for it here. A copy that cannot be
   * written gets it later, and accepts no further change before.
   *
   * @throws {DatabaseAway} when anything else keeps it from that for long
   */
  async #applyOwn(rows: readonly SharedRow[], { position, commit }: Made): Promise<void> {
    const { past } = this.options.replica;
    for (const end = performance.now() + OWN_MS; ; ) {
      try {
        await untilFree(() => past.note([commit]));
        return await this.#apply(rows, position);
      } catch (error) {
        this.#reportNotApplied(error);
      }
      if (this.#isUnwritableLong) return;
      if (performance.now() > end) asUnknown(stillBehind());
      await delay(RETRY_MS);
    }
  }

  async #apply(rows: readonly SharedRow[], position: Position): Promise<void> {
    const { replica, catchUp, onRows } = this.options;
    if (rows.length > MOST_AT_ONCE) {
      this.#behindSince ??= performance.now();
      catchUp.take(this.#position, rows, position);
      return this.#applyArrived({ kind: 'complete', position, reason: 'behind' });
    }
    await applied(replica, rows, position);
    this.#unwritableSince = null;
    this.#position = position;
    onRows(rows);
  }

  /** Requests go on meanwhile. What fails is begun again by the next step. */
  #applyArrived({ position, reason }: Extract<Step, { kind: 'complete' }>): Promise<void> {
    const { replica, catchUp, onRows, log } = this.options;
    const apply = async () => {
      await catchUp.apply(position, onRows);
      this.#unwritableSince = null;
      const before = this.#position;
      this.#position = position;
      this.#behindSince = null;
      this.#isOfAnother = false;
      logWhole(log, reason, position, { before, loss: replica.past.latest });
    };
    const applying = apply().finally(() => {
      this.#applying = null;
    });
    this.#applying = applying.catch(() => {}); // its caller learns of it
    return applying;
  }

  async #answered<T>(question: Promise<T>): Promise<T> {
    const { log } = this.options;
    try {
      const answer = await question;
      if (this.#away) log.info('shared database answers again');
      this.#away = null;
      this.#logWay();
      return answer;
    } catch (error) {
      if (error instanceof DatabaseAway) {
        if (!this.#away) this.#logAway(error);
        this.#away = error;
      }
      throw error;
    }
  }

  #logWay(): void {
    const { log, postgres } = this.options;
    const { through = null, reason } = postgres.detour ?? {};
    if (through === this.#through) return;
    this.#through = through;
    if (through === null) log.info('shared database reached directly again');
    else log.warn({ address: through, reason }, 'shared database reached through another gateway');
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
