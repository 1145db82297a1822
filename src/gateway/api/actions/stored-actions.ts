import type { z } from 'zod';
import type { ListFilters, Resource } from '../../../management/resources/resource.ts';
import { isConstraint } from '../../store/sql/database-problems.ts';
import { chosenRows, type ListedBy, type ListPart } from '../../store/sql/list-choice.ts';
import { type annotatedColumns, changed, type ListOrder, type RowOf, type SqlPart } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';

type NewRow = RowOf<typeof annotatedColumns>;
type Annotations = { description?: string | undefined; metadata?: string | undefined };

/** A resource whose items are rows of one table. */
export interface Stored<R extends Resource, Row> {
  resource: R;
  rows: {
    has(column: string): boolean;
    get(id: string): Row | null;
    page(before: string | null, limit: number): Row[];
    listed(conditions: readonly SqlPart[], before: string, limit: number): Row[];
    sorted(conditions: readonly SqlPart[], order: ListOrder, before: string, limit: number): ListPart<Row>;
    insert(row: Row): void;
    update(row: Row): void;
    delete(id: string): unknown;
  };
  /** What the filters of its list mean. Left out: it has none. */
  listedBy?: ListedBy;
  /** Left out: the row with its URI. */
  shown?(row: Row): z.output<R['answer']>;
  /** Completes a new row in its transaction. Left out: it gets the members of the body. */
  make?(common: NewRow, body: z.output<R['create']>, caller: ApiCaller): Row;
  /** Changes a row in its transaction. Left out: it gets the members of the body. */
  change?(row: Row, body: z.output<R['update']>, caller: ApiCaller): Row;
  /** Throws when an existing row cannot be deleted. */
  checkRemoval?(row: Row): void;
  /** Refuses to delete a row that others refer to. */
  inUse?: readonly [code: number, message: string];
  /** Refuses a row with values that only one may have. */
  duplicate?: readonly [code: number, message: string];
}

type Place = Pick<ApiContext, 'store' | 'links'>;

/** The actions of such a resource. */
export function storedActions<Row extends { id: string }, R extends Resource>(
  context: Place,
  stored: Stored<R, Row>,
): Actions<R> {
  const { resource, rows, listedBy, change = withMembers(rows), checkRemoval, inUse, duplicate } = stored;
  const { database } = context.store;
  const shown = shownBy(context, stored);
  const rowOf = (id: string) => found(rows.get(id), resource);
  return {
    get: (id) => shown(rowOf(id)),
    list: (before, limit, filters: ListFilters) => {
      if (listedBy === undefined) return rows.page(before, limit).map(shown);
      return shownPart(chosenRows(rows, listedBy, filters, [], { before, limit }), shown);
    },
    create: (body, caller) => createRow(context, stored, body, caller),
    update: (id, body, caller) =>
      database.write(() => {
        const row = change(rowOf(id), body, caller);
        refusing('UNIQUE', duplicate, () => rows.update(row));
        return shown(row);
      }, caller),
    delete: (id, _body, caller) =>
      database.write(() => {
        const row = rowOf(id);
        checkRemoval?.(row);
        refusing('FOREIGNKEY', inUse, () => rows.delete(row.id));
      }, caller),
  };
}

/** A part of a list as it is answered. */
export function shownPart<Row, Shown>({ items, ...place }: ListPart<Row>, shown: (row: Row) => Shown): ListPart<Shown> {
  return { ...place, items: items.map(shown) };
}

/** Inserts a row that `make` completes, in one transaction. */
export function createRow<Row extends { id: string }, R extends Resource>(
  context: Place,
  stored: Stored<R, Row>,
  body: z.output<R['create']>,
  caller: ApiCaller,
  make: NonNullable<Stored<R, Row>['make']> = stored.make ?? withMembers(stored.rows),
): Promise<z.output<R['answer']>> {
  const { resource, rows, duplicate } = stored;
  const { database, ids, now } = context.store;
  return database.write(() => {
    const { description = null, metadata = null } = body as Annotations;
    const id = ids.next(resource.idPrefix.slice(0, -1));
    const row = make({ id, created_at: now(), description, metadata }, body, caller);
    refusing('UNIQUE', duplicate, () => rows.insert(row));
    return shownBy(context, stored)(row);
  }, caller);
}

/** A row with the members of a body. It throws for one that is no column: nobody would keep it. */
function withMembers<Row>(rows: { has(column: string): boolean }): (row: object, body: unknown) => Row {
  return (row, body) => {
    const members = body as object;
    const lost = Object.keys(members).find((name) => !rows.has(name));
    if (lost !== undefined) throw new Error(`${lost} is no column: make and change have to say what becomes of it`);
    return changed(row, members) as Row;
  };
}

function shownBy<R extends Resource, Row extends { id: string }>(
  { links }: Place,
  { resource, shown }: Stored<R, Row>,
): (row: Row) => z.output<R['answer']> {
  return shown ?? ((row) => ({ ...row, uri: links.of(resource, row.id) }) as z.output<R['answer']>);
}

/** The members of an answer that a row has as they are. */
export function membersOf<Row extends object, Answer extends z.ZodObject>(
  row: Row,
  { shape }: Answer,
): Pick<Row, keyof Row & keyof z.output<Answer>> {
  return Object.fromEntries(Object.entries(row).filter(([name]) => name in shape)) as ReturnType<
    typeof membersOf<Row, Answer>
  >;
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
