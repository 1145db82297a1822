import type { Request } from 'express';
import { z } from 'zod';
import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import { errorCode, type Refusal, refusalOf } from '../../management/resources/refusal.ts';
import { idPattern, type ReadableResource } from '../../management/resources/resource.ts';

/** @param code number of the error code: 420 for `ERR_NGROK_420` */
export function refuse(status: number, code: number, message: string, options?: ApiErrorOptions): ApiError {
  return new ApiError(status, errorCode(code), message, options);
}

export function badRequest({ code, text }: Refusal): ApiError {
  return refuse(400, code, text);
}

export function unknownId(resource: Pick<ReadableResource, 'name' | 'unknownIdCode'>): ApiError {
  return refuse(404, resource.unknownIdCode, `no ${resource.name} has this id`);
}

/** Maximum and default number of items on a page. */
const MAX_PAGE = 100;

interface PageRequest {
  limit: number;
  /** Only items older than this id, which may be deleted; null: from the newest. */
  beforeId: string | null;
  /** What the items are limited to, and the texts of that. */
  filters: object;
  wanted: Readonly<Record<string, string>>;
}

const NO_FILTERS = z.strictObject({});

/**
 * Parses a request's body with a schema. Official clients need tolerance: a null member counts as not sent, PATCH and PUT
 * may repeat the id of the path, PUT may wrap a module as `{id, module}`, a missing body is `{}`. @throws {ApiError} 400
 */
export function readBody<S extends z.ZodType>(schema: S, method: string, raw: unknown): z.output<S> {
  const result = schema.safeParse(normalizeBody(schema, method, raw), { error: validationMessage });
  if (!result.success) throw badRequest(refusalOf(result.error));
  return result.data;
}

function normalizeBody(schema: z.ZodType, method: string, raw: unknown): unknown {
  if (raw === undefined) return {};
  if (!isObject(raw)) throw badRequest({ code: 213, text: 'the body must be a JSON object' });
  return withoutNulls(schema, method === 'POST' ? raw : withoutWrapping(method, raw));
}

function withoutWrapping(method: string, { id: _, ...members }: Record<string, unknown>): Record<string, unknown> {
  const isWrapped = method === 'PUT' && Object.keys(members).length === 1 && isObject(members.module);
  return isWrapped && isObject(members.module) ? members.module : members;
}

/** Without the members that are null, as far as the schema knows them. */
function withoutNulls(schema: z.ZodType, value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const known = membersOf(schema);
  if (known === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, member]) => member !== null || !Object.hasOwn(known, key))
      .map(([key, member]) => {
        const inner = Object.hasOwn(known, key) ? known[key] : undefined;
        return [key, inner !== undefined && isObject(member) ? withoutNulls(inner, member) : member];
      }),
  );
}

/** The schemas of an object's members; null for any other schema, such as a map with keys of the sender's choice. */
function membersOf(schema: unknown): Readonly<Record<string, z.ZodType>> | null {
  if (schema instanceof z.ZodObject) return schema.shape;
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault) return membersOf(schema.unwrap());
  if (schema instanceof z.ZodPipe) return membersOf(schema.in);
  return null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The TypeScript client sends `beforeId`; without the alias it would read page one forever. */
const PARAMETERS: ReadonlyMap<string, string> = new Map([
  ['limit', 'limit'],
  ['before_id', 'before_id'],
  ['beforeId', 'before_id'],
]);

/** @throws {ApiError} 400: for an unknown or repeated parameter, a limit out of range, an id of another type, a wrong filter */
export function readPageQuery(
  { idPrefix }: Pick<ReadableResource, 'idPrefix'>,
  query: URLSearchParams,
  filters: z.ZodObject = NO_FILTERS,
): PageRequest {
  const given = new Map<string, string>();
  for (const [name, value] of query) {
    const parameter = PARAMETERS.get(name) ?? (Object.hasOwn(filters.shape, name) ? name : undefined);
    if (parameter === undefined) {
      const supported = ['before_id', 'limit', ...Object.keys(filters.shape)].join(', ');
      throw badRequest({ code: 231, text: `unknown query parameter; supported: ${supported}` });
    }
    if (given.has(parameter)) throw badRequest({ code: 232, text: `${parameter} is repeated` });
    given.set(parameter, value);
  }
  const { limit, before_id, ...wanted } = Object.fromEntries(given);
  return {
    limit: readLimit(limit),
    beforeId: readCursor(idPrefix, before_id),
    filters: readFilters(filters, wanted),
    wanted,
  };
}

/** @throws {ApiError} 400: for an unknown, repeated or wrong parameter */
export function readQuery<Q extends z.ZodObject>(schema: Q, query: URLSearchParams): z.output<Q> {
  const names = [...query.keys()];
  if (names.some((name) => !Object.hasOwn(schema.shape, name)))
    throw badRequest({
      code: 231,
      text: `unknown query parameter; supported: ${Object.keys(schema.shape).join(', ')}`,
    });
  const repeated = names.find((name, at) => names.indexOf(name) < at);
  if (repeated !== undefined) throw badRequest({ code: 232, text: `${repeated} is repeated` });
  return readFilters(schema, Object.fromEntries(query));
}

/** @throws {ApiError} 400 for a wrong one */
export function readFilters<F extends z.ZodObject>(filters: F, wanted: Readonly<Record<string, string>>): z.output<F> {
  const result = filters.safeParse(wanted, { error: validationMessage });
  if (!result.success) throw badRequest(refusalOf(result.error));
  return result.data;
}

function readLimit(text = ''): number {
  if (text === '') return MAX_PAGE;
  if (!/^[+-]?\d+$/.test(text)) throw badRequest({ code: 244, text: 'limit is not a number' });
  const limit = Number(text);
  if (limit < 1 || limit > MAX_PAGE) {
    throw badRequest({ code: 233, text: `limit must be from 1 to ${MAX_PAGE}` });
  }
  return limit;
}

function readCursor(prefix: string, text = ''): string | null {
  if (text === '') return null;
  if (new RegExp(idPattern(prefix)).test(text)) return text;
  throw badRequest({ code: 227, text: `before_id must be an id that starts with ${prefix}` });
}

/** The query with repeated parameters, which `req.query` merges. */
export function requestQuery({ url }: Pick<Request, 'url'>): URLSearchParams {
  const mark = url.indexOf('?');
  return new URLSearchParams(mark < 0 ? '' : url.slice(mark + 1));
}
