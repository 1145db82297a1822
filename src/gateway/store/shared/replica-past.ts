import type Libsql from 'libsql';
import { LOSS_TABLE, PAST_TABLE } from '../sql/database.ts';
import type { Position } from './replica-tables.ts';

/** A commit of a shared database. */
export interface Commit {
  readonly version: number;
  /** The first characters of its batch: enough to tell it from another one with the same version. */
  readonly id: string;
  /** When it was made, in Unix milliseconds of the database's clock. */
  readonly at: number;
}

/** What a shared database has lost: it was put back to an older state, or a standby without its last commits was promoted. */
export interface Loss {
  /** The last commit that was kept. */
  readonly after: number;
  /** The last one that this gateway has known. */
  readonly last: number;
  /** Up to where its copy had everything. */
  readonly base: Pick<Commit, 'version' | 'id'>;
  /** When the first commit was made that was lost, in Unix milliseconds; null: not known. */
  readonly since: number | null;
  /** Whether more may be lost: it goes back further than this gateway's memory does. */
  readonly isLeast: boolean;
  /** The id of the newest event that was kept; empty: not known. */
  readonly keptEvent: string;
  /** The event up to which each destination had everything, by the id of the destination. */
  readonly delivered: Readonly<Record<string, string>>;
}

/** What of a loss the shared database itself can tell. */
export interface Kept {
  /** The newest commit of those asked for that it has; null: none. */
  readonly common: number | null;
  /** Commits up to here are no longer known. */
  readonly forgotten: number;
  /** See {@link Loss.keptEvent}. */
  readonly event: string;
}

/** Commits that a copy remembers. */
const REMEMBERED = 5_000;
const ID_LENGTH = 8;

/** Names a commit, as {@link Commit} does. */
export const commitId = ({ version, batch }: Pick<Position, 'version' | 'batch'>) => ({
  version,
  id: batch.slice(0, ID_LENGTH),
});

/** When the first commit was made that was lost, RFC 3339; null: not known. */
export function sinceOf({ since }: Loss): string | null {
  return since === null ? null : new Date(since).toISOString();
}

/** The SQL of PostgreSQL for the {@link Commit.id id} of a commit. */
export const SQL_COMMIT_ID = `left(batch, ${ID_LENGTH})`;

/**
 * The last commits of the shared database that a copy has seen, without gaps, and which of them were lost: an older state does
 * not say what it lacks.
 */
export class ReplicaPast {
  #isPrepared = false;

  constructor(private readonly database: Libsql.Database) {}

  /** Creates its tables where they are missing. */
  get #engine(): Libsql.Database {
    if (this.#isPrepared) return this.database;
    this.database.exec(`CREATE TABLE IF NOT EXISTS ${PAST_TABLE} (
        version INTEGER PRIMARY KEY, id TEXT NOT NULL, at INTEGER NOT NULL
      ) STRICT;
      CREATE TABLE IF NOT EXISTS ${LOSS_TABLE} (
        number INTEGER PRIMARY KEY, text TEXT NOT NULL, said INTEGER NOT NULL DEFAULT 0
      ) STRICT`);
    this.#isPrepared = true;
    return this.database;
  }

  get isEmpty(): boolean {
    return this.#rows(`SELECT 1 FROM ${PAST_TABLE} LIMIT 1`).length === 0;
  }

  /** Oldest first. */
  get commits(): Commit[] {
    return this.#rows<Commit>(`SELECT version, id, at FROM ${PAST_TABLE} ORDER BY version`).map(
      ({ version, id, at }) => ({ version: Number(version), id, at: Number(at) }),
    );
  }

  /** @param commits one after another; those before a gap are forgotten @throws SQLITE_BUSY while another process writes */
  note(commits: readonly Commit[]): void {
    const [first, last] = [commits[0], commits.at(-1)];
    if (first === undefined || last === undefined) return;
    this.#committed(() => {
      const [newest] = this.#rows<{ version: number | null }>(`SELECT max(version) AS version FROM ${PAST_TABLE}`);
      if (first.version > Number(newest?.version ?? 0) + 1) this.#engine.exec(`DELETE FROM ${PAST_TABLE}`);
      const put = this.#engine.prepare(`INSERT OR REPLACE INTO ${PAST_TABLE} (version, id, at) VALUES (?, ?, ?)`);
      for (const { version, id, at } of commits) put.run([version, id, at]);
      this.#engine.prepare(`DELETE FROM ${PAST_TABLE} WHERE version <= ?`).run([last.version - REMEMBERED]);
    });
  }

  /** Notes a loss before the copy gets the older state. @throws SQLITE_BUSY while another process writes */
  lose(own: Position, kept: Kept): Loss {
    const loss = this.#lossOf(own, kept);
    // A command beside the gateway may have noted it already, and the copy has the older state since then.
    const noted = this.#losses().find((each) => each.said === 0 && each.loss.after === loss.after);
    if (noted) return noted.loss;
    this.#committed(() => {
      this.#engine.exec(`DELETE FROM ${LOSS_TABLE} WHERE said`);
      const put = this.#engine.prepare(`INSERT INTO ${LOSS_TABLE} (text) VALUES (?)`);
      put.run([JSON.stringify(loss)]);
      this.#engine.prepare(`DELETE FROM ${PAST_TABLE} WHERE version > ?`).run([loss.after]);
    });
    return loss;
  }

  #lossOf(own: Position, { common, forgotten, event }: Kept): Loss {
    const past = this.commits;
    const newest = past.at(-1);
    const first = past.find(({ version }) => (common === null ? version >= forgotten : version > common));
    return {
      after: common ?? (first?.version ?? own.version) - 1,
      last: Math.max(own.version, newest?.version ?? 0),
      base: commitId(own),
      since: first?.at ?? null,
      isLeast: common === null,
      keptEvent: common === null ? '' : event,
      delivered: this.#delivered(),
    };
  }

  #delivered(): Loss['delivered'] {
    const rows = this.#rows<{ id: string; delivered: string }>('SELECT id, delivered FROM event_deliveries');
    return Object.fromEntries(rows.map(({ id, delivered }) => [id, delivered]));
  }

  /** The oldest loss that the shared database does not have yet; null: there is none. */
  get unsaid(): Loss | null {
    return this.#losses().find(({ said }) => said === 0)?.loss ?? null;
  }

  /** The newest loss, whether the shared database has it or not; null: there was none. */
  get latest(): Loss | null {
    return this.#losses().at(-1)?.loss ?? null;
  }

  /** The shared database has a loss. */
  said({ after }: Loss): void {
    for (const { number, loss } of this.#losses())
      if (loss.after === after)
        this.#engine.prepare(`UPDATE ${LOSS_TABLE} SET said = 1 WHERE number = ?`).run([number]);
  }

  /** The shared database has again what the copy has: nothing was lost. */
  found(own: Position): void {
    const { version, id } = commitId(own);
    for (const { number, loss, said } of this.#losses())
      if (said === 0 && loss.base.version === version && loss.base.id === id)
        this.#engine.prepare(`DELETE FROM ${LOSS_TABLE} WHERE number = ?`).run([number]);
  }

  #losses(): { number: number; loss: Loss; said: number }[] {
    const rows = this.#rows<{ number: number; text: string; said: number }>(
      `SELECT number, text, said FROM ${LOSS_TABLE} ORDER BY number`,
    );
    return rows.map(({ number, text, said }) => ({ number, said: Number(said), loss: JSON.parse(text) as Loss }));
  }

  #rows<Row>(sql: string): Row[] {
    return this.#engine.prepare(sql).all([]) as Row[];
  }

  #committed(work: () => void): void {
    this.#engine.exec('BEGIN IMMEDIATE');
    try {
      work();
      this.#engine.exec('COMMIT');
    } catch (error) {
      if (this.#engine.inTransaction) this.#engine.exec('ROLLBACK');
      throw error;
    }
  }
}
