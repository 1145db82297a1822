import { existsSync } from 'node:fs';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { Log } from '../../../lib/log/log.ts';
import { PACKAGED_COPIER } from '../../../packaged.ts';
import { DatabaseAway, DatabaseUnwritable, isBusy } from '../sql/database-problems.ts';
import type { CopyAnswer, CopyJob } from './copy-jobs.ts';
import { IN_MEMORY, type IncomingRows, type Reason, type RowsProgress } from './incoming-rows.ts';
import type { CommitPage, PageSize, Postgres } from './postgres.ts';
import { NOTHING_YET, type Replica } from './replica.ts';
import { commitId } from './replica-past.ts';
import { digestsOf, type Position, type SharedRow } from './replica-tables.ts';

/** So many rows are applied at once, in some milliseconds. */
export const MOST_AT_ONCE = 1_000;
/** A copy with more rows is gone through by a thread. */
const LARGE = 5_000;
/** Bytes of a page, which grow and shrink with the pace of the link. */
const PAGE_BYTES = { first: 128 * 1024, least: 16 * 1024, most: 512 * 1024 };
/** Other statements wait for a page as long as it takes: less than this, and more than this, if that is possible. */
const PAGE_MS = { long: 1_000, short: 300 };
const PAGE_ROWS = { least: 20, most: 2_000 };
/** For so long, at most, the event loop is held up while what has changed is announced. */
const SLICE_MS = 10;
const LOG_MS = 10_000;
export const RETRY_MS = 50;
const THREAD = { resourceLimits: { maxOldGenerationSizeMb: 48, maxYoungGenerationSizeMb: 4 } };

interface CatchUpOptions {
  replica: Replica;
  /** Of the copy. */
  file: string;
  postgres: Postgres;
  incoming: IncomingRows;
  /** Null: nothing is said. */
  log: Log | null;
}

/** What a step has found. */
export type Step =
  | { readonly kind: 'current' }
  /** To be applied at once. */
  | { readonly kind: 'few'; readonly rows: readonly SharedRow[]; readonly position: Position }
  /** `begun`: with this page. */
  | { readonly kind: 'more'; readonly begun?: Reason }
  /** To be {@link CatchUp.apply applied}. */
  | { readonly kind: 'complete'; readonly position: Position; readonly reason: Reason };

/**
 * Fetches what a copy lacks. A few changes come with one answer. More of them, and what a copy lacks that is new or too old, come in
 * pages that a file keeps as they arrive, and are applied together: no reader sees a state that never was.
 */
export class CatchUp {
  #bytes = PAGE_BYTES.first;
  /** Bytes of a row, on average. */
  #rowBytes = 256;
  #loggedAt = performance.now();

  constructor(private readonly options: CatchUpOptions) {}

  /**
   * Fetches one page. @param own what the copy has @throws {DatabaseAway}
   * @throws {DatabaseUnwritable} when it is not the same shared database any more
   */
  async step(own: Position): Promise<Step> {
    const { incoming } = this.options;
    const { progress } = incoming;
    if (progress === null) return this.#look(own);
    if (progress.base.cluster === own.cluster && progress.base.batch === own.batch) return this.#next(progress);
    incoming.discard();
    return { kind: 'more' };
  }

  /** Compares a copy with the shared database, up to what it has. @returns whether it is the same; else steps mend it */
  async verify(own: Position): Promise<boolean> {
    const parts = await this.differing(own);
    if (parts.length > 0) this.#begin(own, 'differs', own, parts);
    return parts.length === 0;
  }

  /** As {@link differingParts}; a thread goes through a large copy. */
  async differing(position: Position): Promise<string[]> {
    const { replica, postgres, file } = this.options;
    return differingParts(replica, postgres, position, (except) =>
      this.#needsThread(replica.size, LARGE) ? inThread({ kind: 'digests', file, except }) : digests(replica, except),
    );
  }

  /** Notes a commit of this gateway with more rows than can be applied at once. */
  take(base: Position, rows: readonly SharedRow[], position: Position): void {
    const texts = rows.map(({ tbl, key, row }) => ({ tbl, key, row: row && JSON.stringify(row) }));
    const progress = { base, reason: 'behind' as const, parts: null, copied: null, from: base.version, seen: position };
    this.options.incoming.keep(texts, { ...progress, changed: after(position), rows: rows.length });
  }

  /** Applies what has arrived. @param onRows called with some rows at a time, once all are there */
  async apply(position: Position, onRows: (rows: readonly Pick<SharedRow, 'tbl' | 'key'>[]) => void): Promise<void> {
    const { replica, file, incoming, log } = this.options;
    const { progress } = incoming;
    if (this.#needsThread(progress?.rows ?? 0, MOST_AT_ONCE) || this.#needsThread(replica.size, LARGE))
      await inThread({ kind: 'apply', file, incoming: incoming.file, position });
    else replica.applyIncoming(incoming, position);
    let since = performance.now();
    for (const names of incoming.names()) {
      onRows(names);
      if (performance.now() - since < SLICE_MS) continue;
      await nextTurn();
      since = performance.now();
    }
    incoming.discard();
    const rows = progress?.rows ?? 0;
    if (log && rows > MOST_AT_ONCE) log.info({ rows, commit: position.version }, 'caught up with the shared database');
  }

  /** Keeps what has arrived for the next start. */
  close(): void {
    this.options.incoming.close();
  }

  #needsThread(rows: number, most: number): boolean {
    const { file, incoming } = this.options;
    return rows > most && incoming.file !== IN_MEMORY && existsSync(file);
  }

  /** Of the next page. */
  get pageSize(): PageSize {
    const most = Math.round((2 * this.#bytes) / this.#rowBytes);
    return { rows: Math.min(PAGE_ROWS.most, Math.max(PAGE_ROWS.least, most)), bytes: this.#bytes };
  }

  async #look(own: Position): Promise<Step> {
    const from = after(own);
    const page = await this.#paced((size) => this.options.postgres.changesAfter(own, from, size));
    const { head, isKnown, forgotten } = page;
    requireSame(head, own);
    if (isKnown) await this.#remember(own);
    if (head.batch === own.batch) return { kind: 'current' };
    if (!isKnown || forgotten > own.version || head.version < own.version) {
      const reason = own.version === NOTHING_YET ? 'first' : forgotten > own.version ? 'forgotten' : 'older';
      // PostgreSQL was put back to an older state, or this gateway was away for too long, or has nothing yet.
      if (reason === 'older') await this.#lose(own);
      this.#begin(own, reason, head, reason === 'first' ? null : await this.differing(head));
      return { kind: 'more', begun: reason };
    }
    const few = fewOf(own, page);
    if (few) return few;
    const progress = { base: own, reason: 'behind' as const, parts: null, copied: null, from: own.version, rows: 0 };
    this.#keep(page, { ...progress, changed: from, seen: own });
    return { kind: 'more', begun: 'behind' };
  }

  /** Remembers the commits of before, when it is the first time. */
  async #remember(own: Position): Promise<void> {
    const { past } = this.options.replica;
    if (await untilFree(() => past.isEmpty)) await this.#note(await this.options.postgres.commitsAfter(NOTHING_YET));
    past.found(own);
  }

  /** Notes which commits are lost. */
  async #lose(own: Position): Promise<void> {
    const { replica, postgres } = this.options;
    const { past } = replica;
    const kept = await postgres.kept([...past.commits, commitId(own)]);
    const { after } = await untilFree(() => past.lose(own, kept));
    await this.#note(await postgres.commitsAfter(after));
  }

  async #note(commits: CommitPage['commits']): Promise<void> {
    await untilFree(() => this.options.replica.past.note(commits));
  }

  #begin(base: Position, reason: Reason, from: Position, parts: readonly string[] | null): void {
    const copied = parts?.length === 0 ? null : (['', ''] as const);
    const progress = { base, reason, parts, copied, from: from.version, changed: after(from), seen: from, rows: 0 };
    this.options.incoming.keep([], progress);
  }

  async #next(progress: RowsProgress): Promise<Step> {
    const { replica, postgres, incoming } = this.options;
    const { copied, changed, seen, parts, base, from } = progress;
    const { tables } = replica;
    const page = await this.#paced((size) =>
      copied ? postgres.rowsAfter(seen, { tables, parts }, copied, size) : postgres.changesAfter(seen, changed, size),
    );
    requireSame(page.head, base);
    if (copied?.[0] === '' && parts === null && page.rows.length === 0) throw beingRestored();
    if (page.isKnown && page.forgotten <= from) return this.#keep(page, progress);
    // It was put back to an older state, or has forgotten deletions: what has arrived is of no use.
    incoming.discard();
    return { kind: 'more' };
  }

  #keep({ head, rows, hasMore }: CommitPage, before: RowsProgress): Step {
    const last = rows.at(-1);
    const isCopy = before.copied !== null;
    const progress: RowsProgress = {
      ...before,
      copied: isCopy && hasMore && last ? [last.tbl, last.key] : null,
      changed: !isCopy && last ? [last.version, last.tbl, last.key] : before.changed,
      seen: head ?? before.seen,
      rows: before.rows + rows.length,
    };
    this.options.incoming.keep(rows, progress);
    const { log } = this.options;
    if (log && performance.now() - this.#loggedAt > LOG_MS) {
      this.#loggedAt = performance.now();
      log.info({ rows: progress.rows }, 'catching up with the shared database');
    }
    if (isCopy || hasMore) return { kind: 'more' };
    return { kind: 'complete', position: progress.seen, reason: progress.reason };
  }

  /** Fetches a page, and adjusts the length of the next one: others wait for it. */
  async #paced(fetch: (size: PageSize) => Promise<CommitPage>): Promise<CommitPage> {
    const begunAt = performance.now();
    const pages = await fetch(this.pageSize).catch((error: unknown) => {
      this.#bytes = PAGE_BYTES.least;
      throw error;
    });
    const tookMs = performance.now() - begunAt;
    if (tookMs > PAGE_MS.long) this.#bytes = Math.max(PAGE_BYTES.least, this.#bytes / 2);
    else if (tookMs < PAGE_MS.short && pages.hasMore) this.#bytes = Math.min(PAGE_BYTES.most, this.#bytes * 2);
    if (pages.rows.length > 0) {
      const bytes = pages.rows.reduce((sum, { key, row }) => sum + key.length + (row?.length ?? 0), 0);
      this.#rowBytes = bytes / pages.rows.length;
    }
    await this.#note(pages.commits);
    return pages;
  }
}

/**
 * Parts of tables in which a copy is not what the shared database was after a commit.
 * @param digestsOwn sums up the copy, which must not change meanwhile @throws {DatabaseAway}
 */
export async function differingParts(
  replica: Replica,
  postgres: Postgres,
  { version }: Position,
  digestsOwn: (except: readonly string[]) => ReadonlyMap<string, bigint> | Promise<ReadonlyMap<string, bigint>> = (
    except,
  ) => digests(replica, except),
): Promise<string[]> {
  const { sums, changed } = await postgres.digests(replica.tables, version);
  // Even a new one has an account.
  if (sums.size === 0 && changed.length === 0) throw beingRestored();
  const own = await digestsOwn(changed);
  return [...new Set([...sums.keys(), ...own.keys()])].filter((part) => sums.get(part) !== own.get(part));
}

const digests = ({ engine, tables }: Replica, except: readonly string[]) => digestsOf(engine, tables, new Set(except));

/** Waits while another process writes to the copy. @throws the engine's error */
export async function untilFree<T>(work: () => T): Promise<T> {
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    await delay(RETRY_MS);
  }
}

/** What has changed since `own`, if it is little, and a page of changes has all of it; null: only {@link CatchUp.step} can tell. */
export function fewOf(
  own: Position,
  { head, isKnown, forgotten, rows, hasMore }: CommitPage,
): Extract<Step, { kind: 'few' }> | null {
  if (head === null || !isKnown || forgotten > own.version || head.version < own.version) return null;
  if (hasMore || rows.length > MOST_AT_ONCE) return null;
  return { kind: 'few', rows: rows.map(parsed), position: head };
}

/** Where the rows of later commits begin: before every table. */
function after({ version }: Position): RowsProgress['changed'] {
  return [version + 1, '', ''];
}

function requireSame(head: Position | null, { cluster }: Position): asserts head is Position {
  if (head?.cluster === cluster) return;
  throw new DatabaseUnwritable(
    'it is not the shared database any more that this gateway has used',
    'shared database was replaced',
    'restore that one, or restart the gateway',
  );
}

function beingRestored(): DatabaseAway {
  return new DatabaseAway('it is being restored', null, true);
}

function parsed({ tbl, key, row }: CommitPage['rows'][number]): SharedRow {
  return { tbl, key, row: row === null ? null : JSON.parse(row) };
}

/** @throws the engine's error, with its code */
async function inThread(job: CopyJob): Promise<ReadonlyMap<string, bigint>> {
  const worker = new Worker(PACKAGED_COPIER, { workerData: job, ...THREAD });
  try {
    const answer = await new Promise<CopyAnswer>((resolve, reject) => {
      worker
        .on('message', resolve)
        .on('error', reject)
        .on('exit', () => reject(new Error('the thread ended')));
    });
    if ('problem' in answer) throw Object.assign(new Error(answer.problem), { code: answer.code });
    return answer.digests;
  } finally {
    await worker.terminate();
  }
}
