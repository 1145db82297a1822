import type Libsql from 'libsql';
import { OperatorError } from '../../../lib/errors.ts';
import { MIGRATIONS } from './migrations.ts';

/**
 * What to do with a database of an older version of this program. Commands beside a running gateway must not upgrade its
 * database: that gateway may still be the older version.
 */
export type OlderSchema = 'upgrade' | 'refuse' | 'keep';

/**
 * Upgrades a database to the current schema, in one transaction.
 *
 * @param file its path, for the error
 * @throws {OperatorError} for a newer version's database, or for an older one when upgrading is refused
 */
export function migrate(engine: Libsql.Database, file: string, older: OlderSchema = 'upgrade'): void {
  // Lock first: two processes may start with the same folder.
  engine.exec('BEGIN IMMEDIATE');
  try {
    const [row] = engine.prepare('PRAGMA user_version').all() as { user_version: number }[];
    const version = row?.user_version ?? 0;
    if (version > MIGRATIONS.length) {
      throw new OperatorError(
        `${file} was written by a newer version of this program (schema ${version}, this one knows ${MIGRATIONS.length}): use that version, or restore an older backup`,
      );
    }
    if (version < MIGRATIONS.length && older === 'refuse') {
      throw new OperatorError(
        `${file} was written by an older version of this program: restart the gateway, which brings it up to date, and try again`,
      );
    }
    if (version < MIGRATIONS.length && older === 'upgrade') {
      for (const sql of MIGRATIONS.slice(version)) engine.exec(sql);
      engine.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
    }
    engine.exec('COMMIT');
  } catch (error) {
    engine.exec('ROLLBACK');
    throw error;
  }
}
