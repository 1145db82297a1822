import type { z } from 'zod';
import type { Resource } from '../../../management/resources/resource.ts';
import type { Database } from '../../store/sql/database.ts';
import { isConstraint } from '../../store/sql/database-problems.ts';
import { type annotatedColumns, changed, type RowOf } from '../../store/sql/table.ts';
import type { Store } from '../../store/store.ts';
import { type Actions, type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';

type Changes<Row> = { [Name in keyof Row]?: Row[Name] | undefined };

/** A resource whose items are rows of one table. */
export interface Stored<R extends Resource, Row> {
  resource: R;
  rows: {
    get(id: string): Row | null;
    page(before: string | null, limit: number): Row[];
    insert(row: Row): void;
    update(row: Row): void;
    delete(id: string): unknown;
  };
  shown(row: Row): z.output<R['answer']>;
  update?(row: Row): void;
  /** Throws when an existing row cannot be deleted. */
  checkRemoval?(row: Row): void;
  /** Refuses to delete a row that others refer to. */
  inUse?: readonly [code: number, message: string];
}

/** The actions of such a resource, except create, which differs for each. */
export function storedActions<Row extends { id: string }, R extends Resource<z.ZodType, z.ZodType<Changes<Row>>>>(
  database: Database,
  { resource, rows, shown, update = (row) => rows.update(row), checkRemoval, inUse }: Stored<R, Row>,
): Omit<Actions<R>, 'create'> {
  const stored = (id: string) => found(rows.get(id), resource);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before, limit).map(shown),
    update: (id, body, caller) =>
      database.write(() => {
        const row = changed(stored(id), body);
        update(row);
        return shown(row);
      }, caller),
    delete: (id, _body, caller) =>
      database.write(() => {
        const row = stored(id);
        checkRemoval?.(row);
        try {
          rows.delete(row.id);
        } catch (error) {
          if (inUse && isConstraint(error, 'FOREIGNKEY')) throw refuse(400, ...inUse);
          throw error;
        }
      }, caller),
  };
}

/** Inserts the row that `make` completes, in one transaction. */
export function createRow<Row extends { id: string }, R extends Resource>(
  { database, ids, now }: Store,
  { resource, rows, shown }: Stored<R, Row>,
  sent: { description?: string | undefined; metadata?: string | undefined },
  caller: ApiCaller,
  make: (common: RowOf<typeof annotatedColumns>) => Row,
): Promise<z.output<R['answer']>> {
  return database.write(() => {
    const id = ids.next(resource.idPrefix.slice(0, -1));
    const annotations = { description: sent.description ?? null, metadata: sent.metadata ?? null };
    const row = make({ id, created_at: now(), ...annotations });
    rows.insert(row);
    return shown(row);
  }, caller);
}
