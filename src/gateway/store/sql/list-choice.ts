import type { ListFilters } from '../../../management/resources/resource.ts';
import { searchForms } from '../../endpoints/domain-names.ts';
import type { SqlValue } from './sql-engine.ts';
import { END, type ListOrder, type SqlPart } from './table.ts';

/** How lists of a table are chosen: in SQL, what a search looks at, and by what they can be sorted. */
export interface ListedBy {
  readonly searched: readonly string[];
  readonly sorted: Readonly<Record<string, string | SqlPart>>;
}

/** The part of a list that was asked for. */
export interface ListPart<Row> {
  readonly items: readonly Row[];
  /** By which each is sorted, in a sorted list. */
  readonly values?: readonly string[];
  /** The id up to which was looked, when that was not everything. */
  readonly readTo?: string | null;
}

interface Chosen<Row> {
  listed(conditions: readonly SqlPart[], before: string, limit: number): Row[];
  sorted(conditions: readonly SqlPart[], order: ListOrder, before: string, limit: number): ListPart<Row>;
}

/** A page of the rows for which all filters hold. @param further what the other filters of the list mean */
export function chosenRows<Row>(
  table: Chosen<Row>,
  { searched, sorted }: ListedBy,
  { search, sort, after }: ListFilters,
  further: readonly SqlPart[],
  { before, limit }: { before: string | null; limit: number },
): ListPart<Row> {
  const conditions = search ? [...further, searchCondition(searched, search)] : further;
  const by = sort && sorted[sort.by];
  if (by === undefined) return { items: table.listed(conditions, before ?? END, limit) };
  const value: SqlPart = typeof by === 'string' ? [by] : by;
  return table.sorted(conditions, { value, isDescending: sort?.isDescending ?? false, after }, before ?? END, limit);
}

/** The condition that one of the texts has another one in it; both in lower case. */
export function searchCondition(searched: readonly string[], search: string): SqlPart {
  const text = searched.map((sql) => `coalesce(${sql}, '')`).join(" || ' ' || ");
  const forms = searchForms(search);
  return [`(${forms.map(() => `instr(lower(${text}), ?) > 0`).join(' OR ')})`, ...forms];
}

/** The condition that a column with labels has one: `name=value`, or `name` with any value. */
export function labelCondition(label: string): SqlPart {
  const { name, value } = labelParts(label);
  const ofLabel = 'SELECT 1 FROM json_each(labels) WHERE key = ?';
  return value === undefined ? [`EXISTS (${ofLabel})`, name] : [`EXISTS (${ofLabel} AND value = ?)`, name, value];
}

/** A wanted label; its value is undefined where any will do. */
export function labelParts(label: string): { name: string; value: string | undefined } {
  const [name = '', value] = label.split(/=(.*)/s);
  return { name, value };
}

/** A condition for each filter that is there. */
export function conditionsOf<Filters extends object>(
  filters: Filters,
  meanings: { readonly [Name in keyof Filters]?: (value: NonNullable<Filters[Name]>) => SqlPart },
): SqlPart[] {
  return Object.entries(meanings).flatMap(([name, meaning]) => {
    const value = filters[name as keyof Filters];
    return value === undefined || value === null ? [] : [(meaning as (value: unknown) => SqlPart)(value)];
  });
}

/** The SQL of several conditions, and their values in its order. */
export function joined(conditions: readonly SqlPart[]): SqlPart {
  const values: SqlValue[] = conditions.flatMap(([, ...own]) => own);
  return [conditions.map(([sql]) => sql).join(' AND '), ...values];
}
