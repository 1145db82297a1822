import type { z } from 'zod';
import type { Resource } from '../../../management/resources/resource.ts';
import type { Database } from '../../store/sql/database.ts';
import { isConstraint } from '../../store/sql/database-problems.ts';
import { changed } from '../../store/sql/table.ts';
import { refuse } from '../refuse.ts';
import { type Actions, found } from '../resource-router.ts';

/** New values of columns; absent and undefined columns keep theirs. */
type Changes<Row> = { [Name in keyof Row]?: Row[Name] | undefined };

/** A resource whose items are rows of one table. */
export interface Stored<R extends Resource, Row> {
  resource: R;
  rows: {
    get(id: string): Row | null;
    page(before: string | null, limit: number): Row[];
    update(row: Row): void;
    delete(id: string): unknown;
  };
  shown(row: Row): z.output<R['answer']>;
  /** Writes a changed row; the default updates it. */
  update?(row: Row): void;
  /** Deletes an existing row; the default deletes it without checks. */
  remove?(row: Row): void;
}

/** The actions of such a resource, except create, which differs for each. */
export function storedActions<Row extends { id: string }, R extends Resource<z.ZodType, z.ZodType<Changes<Row>>>>(
  database: Database,
  { resource, rows, shown, update = (row) => rows.update(row), remove = ({ id }) => rows.delete(id) }: Stored<R, Row>,
): Omit<Actions<R>, 'create'> {
  const stored = (id: string) => found(rows.get(id), resource);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map(shown),
    update: (id, body) =>
      database.write(() => {
        const row = changed(stored(id), body);
        update(row);
        return shown(row);
      }),
    remove: (id) =>
      database.write(() => {
        remove(stored(id));
      }),
  };
}

/** Deletes a row, and refuses with an API error when other rows still refer to it. */
export function deleteUnlessUsed(remove: () => void, code: number, message: string): void {
  try {
    remove();
  } catch (error) {
    if (isConstraint(error, 'FOREIGNKEY')) throw refuse(400, code, message);
    throw error;
  }
}
