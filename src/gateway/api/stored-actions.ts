import type { z } from 'zod';
import type { Resource } from '../../management/resources/resource.ts';
import { changed } from '../store/changed.ts';
import type { Database } from '../store/database.ts';
import { type Actions, found } from './resource-router.ts';

/** Columns to be set anew; what is absent or undefined stays. */
type Changes<Row> = { [Name in keyof Row]?: Row[Name] | undefined };

/** A resource each of whose items is a row of one table. */
export interface Stored<R extends Resource, Row> {
  resource: R;
  rows: {
    get(id: string): Row | null;
    page(before: string | null, limit: number): Row[];
    update(row: Row): void;
    delete(id: string): unknown;
  };
  /** The row as the API shows it. */
  shown(row: Row): z.output<R['answer']>;
  /** Writes a changed row; left out: just so. */
  update?(row: Row): void;
  /** Deletes a row that is there; left out: just so. */
  remove?(row: Row): void;
}

/** All that can be done with such a resource, but for creating an item, in which they differ. */
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
