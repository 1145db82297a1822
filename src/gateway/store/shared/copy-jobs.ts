import type Libsql from 'libsql';
import { sqlEngine } from '../sql/sql-engine.ts';
import { IncomingRows, type RowsProgress } from './incoming-rows.ts';
import {
  digestsOf,
  isSameRow,
  type Position,
  partOf,
  putRows,
  rowsOf,
  type SharedRow,
  type Tables,
  tablesOf,
  writePosition,
} from './replica-tables.ts';

/** How long a thread waits for another process that writes to the copy. */
const BUSY_MS = 5_000;

/** Work with a whole copy, which takes seconds: in a thread, unless the copy is small. */
export type CopyJob =
  | { readonly kind: 'digests'; readonly file: string; readonly except: readonly string[] }
  | { readonly kind: 'apply'; readonly file: string; readonly incoming: string; readonly position: Position };

/** `code` is the engine's. */
export type CopyAnswer =
  | { readonly digests: ReadonlyMap<string, bigint> }
  | { readonly problem: string; readonly code: string | undefined };

/** @returns what the copy has, for `digests`, see {@link digestsOf}; else nothing */
export function runCopyJob(job: CopyJob): ReadonlyMap<string, bigint> {
  const engine = new (sqlEngine())(job.file, { timeout: BUSY_MS });
  try {
    const tables = tablesOf(engine);
    if (job.kind === 'digests') return digestsOf(engine, tables, new Set(job.except));
    const incoming = new IncomingRows(job.incoming);
    try {
      engine.exec('PRAGMA synchronous = NORMAL');
      // The log is moved afterwards, outside of the commit.
      engine.exec('PRAGMA wal_autocheckpoint = 0');
      applyIncoming(engine, tables, incoming, job.position);
      checkpoint(engine);
      return new Map();
    } finally {
      incoming.close();
    }
  } finally {
    engine.close();
  }
}

/** Gives a copy all rows that have arrived, in one commit: its readers see them at once. */
export function applyIncoming(
  engine: Libsql.Database,
  tables: Tables,
  incoming: IncomingRows,
  position: Position,
): void {
  const { progress } = incoming;
  if (progress === null) throw new Error('nothing has arrived');
  if (progress.reason !== 'behind') {
    const isSame = (own: SharedRow, arrived: NonNullable<SharedRow['row']>) => {
      const table = tables.get(own.tbl);
      return table !== undefined && isSameRow(table, own.row, arrived);
    };
    incoming.compare(rowsIn(engine, tables, progress.parts), isSame);
  }
  // Has no effect inside a transaction.
  engine.exec('PRAGMA foreign_keys = OFF');
  try {
    engine.exec('BEGIN IMMEDIATE');
    putRows(engine, tables, incoming.rows);
    writePosition(engine, position);
    engine.exec('COMMIT');
  } catch (error) {
    if (engine.inTransaction) engine.exec('ROLLBACK');
    throw error;
  } finally {
    engine.exec('PRAGMA foreign_keys = ON');
  }
}

/** Rows of a copy that are in some parts of its tables; null: all. */
function* rowsIn(engine: Libsql.Database, tables: Tables, parts: RowsProgress['parts']): Generator<SharedRow> {
  const wanted = parts && new Set(parts);
  for (const table of tables.values())
    for (const row of rowsOf(engine, table)) if (wanted === null || wanted.has(partOf(row))) yield row;
}

function checkpoint(engine: Libsql.Database): void {
  try {
    engine.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all([]);
  } catch {
    // It is committed; the next checkpoint moves the log.
  }
}
