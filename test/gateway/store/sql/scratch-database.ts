import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { Database } from '../../../../src/gateway/store/sql/database.ts';

/** Adds a row of {@link names}. */
export const INSERT = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', '', 1)";

/** The ids that {@link INSERT} has added. */
export function names(database: Database): string[] {
  return database.all<{ id: string }>('SELECT id FROM bot_users ORDER BY id').map(({ id }) => id);
}

/** A new database in a temporary folder, which is removed after the test. */
export function scratchDatabase(): { folder: string; file: string; database: Database } {
  const folder = mkdtempSync(join(tmpdir(), 'database-'));
  const file = join(folder, 'gateway.db');
  const database = Database.open(file);
  onTestFinished(() => {
    database.close();
    rmSync(folder, { recursive: true });
  });
  return { folder, file, database };
}
