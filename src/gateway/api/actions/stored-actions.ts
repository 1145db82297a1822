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
  /** Refuses a row with values that only one may have. */
  duplicate?: readonly [code: number, message: string];
}

/** The actions of such a resource, except create, which differs for each. */
export function storedActions<Row extends { id: string }, R extends Resource<z.ZodType, z.ZodType<Changes<Row>>>>(
  database: Database,
  { resource, rows, shown, update = (row) => rows.update(row), checkRemoval, inUse, duplicate }: Stored<R, Row>,
): Omit<Actions<R>, 'create'> {
  const stored = (id: string) => found(rows.get(id), resource);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before, limit).map(shown),
    update: (id, body, caller) =>
      database.write(() => {
        const row = changed(stored(id), body);
        refusing('UNIQUE', duplicate, () => update(row));
        return shown(row);
      }, caller),
    delete: (id, _body, caller) =>
      database.write(() => {
        const row = stored(id);
        checkRemoval?.(row);
        refusing('FOREIGNKEY', inUse, () => rows.delete(row.id));
      }, caller),
  };
}

/** Inserts the row that `make` completes, in one transaction. */
export function createRow<Row extends { id: string }, R extends Resource>(
  { database, ids, now }: Store,
  { resource, rows, shown, duplicate }: Stored<R, Row>,
  sent: { description?: string | undefined; metadata?: string | undefined },
  caller: ApiCaller,
  make: (common: RowOf<typeof annotatedColumns>) => Row,
): Promise<z.output<R['answer']>> {
  return database.write(() => {
    const id = ids.next(resource.idPrefix.slice(0, -1));
    const annotations = { description: sent.description ?? null, metadata: sent.metadata ?? null };
    const row = make({ id, created_at: now(), ...annotations });
    refusing('UNIQUE', duplicate, () => rows.insert(row));
    return shown(row);
  }, caller);
}

/** Writes a row. @throws {ApiError} 400 with the code and message when a constraint of its table is in the way */
export function refusing<T>(
  rule: 'UNIQUE' | 'FOREIGNKEY',
  refusal: readonly [code: number, message: string] | undefined,
  write: () => T,
): T {
  try {
    return write();
  } catch (error) {
    throw refusal && isConstraint(error, rule) ? refuse(400, ...refusal) : error;
  }
}
