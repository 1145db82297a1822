import { Router } from 'express';
import type { z } from 'zod';
import type { Operation } from '../../management/operations.ts';
import type { ReadableResource, Resource } from '../../management/resources/resource.ts';
import { keyHolder } from '../store/command-access.ts';
import type { Caller } from '../store/sql/database.ts';
import type { ListPart } from '../store/sql/list-choice.ts';
import type { ApiContext, Links } from './api-context.ts';
import type { Guards } from './guards.ts';
import type { Handler } from './handler.ts';
import { readBody, readPageQuery, readQuery, requestQuery, unknownId } from './request.ts';

export interface ApiCaller extends Caller {
  readonly keyId: string;
}

export interface ReadActions<R extends ReadableResource> {
  /** @throws {ApiError} 404 when the id is unknown */
  get(id: string): z.output<R['answer']>;
  /** Items older than `before`, which may have been deleted, newest first; null starts with the newest. */
  list(before: string | null, limit: number, filters: object): Listed<z.output<R['answer']>>;
}

/** The actions of a resource. A change is durable when its promise resolves. */
export interface Actions<R extends Resource> extends ReadActions<R> {
  create(body: z.output<R['create']>, caller: ApiCaller): Promise<z.output<R['answer']>>;
  update(id: string, body: z.output<R['update']>, caller: ApiCaller): Promise<z.output<R['answer']>>;
  delete(id: string, body: undefined, caller: ApiCaller): Promise<void>;
}

/** A list, or a part of it that says how to go on. */
type Listed<Item> = readonly Item[] | ListPart<Item>;

type BodyOf<O> = O extends { body: infer Body extends z.ZodType } ? z.output<Body> : undefined;
type FiltersOf<O> = O extends { filters: infer Filters extends z.ZodObject } ? z.output<Filters> : object;
type AnswerOf<O> = O extends { answer: infer Answer extends z.ZodType } ? z.output<Answer> : unknown;

/** Of an operation with query parameters. */
type QueryInput<O, Query extends z.ZodObject> = O extends { path: `${string}{id}${string}` }
  ? [id: string, query: z.output<Query>]
  : [query: z.output<Query>];

export type ActionsOf<Family> = {
  [Name in keyof Family]: Name extends 'list'
    ? (before: string | null, limit: number, filters: FiltersOf<Family[Name]>) => Listed<AnswerOf<Family[Name]>>
    : Name extends `list${string}`
      ? (id: string, before: string | null, limit: number) => Listed<AnswerOf<Family[Name]>>
      : Name extends 'create' | 'count'
        ? (body: BodyOf<Family[Name]>, caller: ApiCaller) => Promise<AnswerOf<Family[Name]>>
        : Family[Name] extends { query: infer Query extends z.ZodObject }
          ? (...input: QueryInput<Family[Name], Query>) => AnswerOf<Family[Name]> | Promise<AnswerOf<Family[Name]>>
          : (
              id: string,
              body: BodyOf<Family[Name]>,
              caller: ApiCaller,
              /** `{type}` of the path; empty without one. */
              type: string,
            ) => AnswerOf<Family[Name]> | Promise<AnswerOf<Family[Name]>>;
};

/** A router that matches paths exactly, without an optional slash and with their case. */
export function strictRouter(): Router {
  return Router({ strict: true, caseSensitive: true });
}

/** The routes of a family of operations. @param actions {@link ActionsOf} the family */
export function operationRouter(
  family: Readonly<Record<string, Operation>>,
  actions: object,
  guards: Guards,
  context: Pick<ApiContext, 'store' | 'links'>,
): Router {
  const router = strictRouter();
  for (const [name, operation] of Object.entries(family)) {
    const { method, path, body, listKey, query } = operation;
    const guard = listKey !== null || query ? guards.list : body ? guards.withBody : guards.plain;
    // Its type was checked where the actions are, operation by operation.
    const action = actions[name as keyof typeof actions] as (...input: unknown[]) => unknown;
    const handler =
      listKey === null ? perform(operation, action, context) : list(operation, listKey, action, context.links);
    router
      .route(path.replaceAll(/\{(\w+)\}/g, ':$1'))
      [method.toLowerCase() as Lowercase<typeof method>](...guard, handler);
  }
  return router;
}

function perform(
  { method, path, body, answer, status, query, csv }: Operation,
  action: (...input: unknown[]) => unknown,
  { store }: Pick<ApiContext, 'store'>,
): Handler {
  return async (req, res) => {
    const { params, body: sent, ip } = req;
    const input = body ? readBody(body, method, sent) : query && readQuery(query, requestQuery(req));
    const keyId = String(res.locals.apiKeyId);
    const caller: ApiCaller = { keyId, by: keyHolder(store, keyId), from: ip ?? null, isOperator: true };
    const result = await action(...ofOne(path, params.id), input, caller, params.type ?? '');
    res.status(status);
    if (answer === null) res.end();
    else if (csv !== undefined && req.accepts(['application/json', 'text/csv']) === 'text/csv')
      res.type('text/csv').send(csvText((result as Record<string, object[]>)[csv] ?? []));
    else res.json(result);
  };
}

function list(operation: Operation, listKey: string, action: (...input: unknown[]) => unknown, links: Links): Handler {
  const { path, idPrefix, itemPrefix = idPrefix, filters: schema } = operation;
  return (req, res) => {
    const { limit, beforeId, filters, wanted } = readPageQuery({ idPrefix: itemPrefix }, requestQuery(req), schema);
    const id = ofOne(path, req.params.id);
    // One more than requested shows whether another page follows.
    const found = action(...id, beforeId, limit + 1, filters) as Listed<{ id: string }>;
    const part: ListPart<{ id: string }> = 'items' in found ? found : { items: found };
    const uri = links.to(path.replace('{id}', id[0] ?? ''));
    const place = nextPlace(part, limit);
    const query = place && new URLSearchParams({ ...place, limit: String(limit), ...wanted, ...place });
    res.json({ [listKey]: part.items.slice(0, limit), uri, next_page_uri: query && `${uri}?${query}` });
  };
}

/** Where the next page begins; null: this is the last one. */
function nextPlace({ items, values, readTo }: ListPart<{ id: string }>, limit: number): Record<string, string> | null {
  const last = items[limit - 1];
  if (items.length <= limit || last === undefined) return readTo ? { before_id: readTo } : null;
  const after = values?.[limit - 1];
  return { before_id: last.id, ...(after !== undefined && { after }) };
}

/** The id in a path, when an operation is on one resource. */
function ofOne(path: string, id: unknown): [] | [id: string] {
  return path.includes('{id}') ? [String(id)] : [];
}

/** @throws {ApiError} 404 when no row has the id of the path */
export function found<Row>(row: Row | null, resource: Pick<ReadableResource, 'name' | 'unknownIdCode'>): Row {
  if (row === null) throw unknownId(resource);
  return row;
}

/** Rows as CSV (RFC 4180): members of objects in them become columns of their own, and records texts. */
function csvText(rows: readonly object[]): string {
  const flat = rows.map((row) => Object.fromEntries(cellsOf(row)));
  const columns = [...new Set(flat.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...flat.map((row) => columns.map((column) => row[column] ?? ''))];
  return lines.map((line) => `${line.map(quoted).join(',')}\r\n`).join('');
}

function cellsOf(row: object, prefix = ''): [column: string, value: string][] {
  return Object.entries(row).flatMap(([name, value]): [string, string][] =>
    typeof value === 'object' && value !== null
      ? cellsOf(value, `${prefix}${name}_`)
      : [[prefix + name, value === null ? '' : String(value)]],
  );
}

function quoted(cell: string): string {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}
