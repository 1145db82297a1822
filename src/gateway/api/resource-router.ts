import type { z } from 'zod';
import { sendJson, sendNothing } from '../../lib/http-answer.ts';
import type { RoutedRequest } from '../../lib/http-router.ts';
import { badRequest, readBody, readPageQuery } from '../../management/request.ts';
import type { ReadableResource, Resource } from '../../management/resources/resource.ts';
import type { Links } from './links.ts';
import { unknownId } from './refuse.ts';
import { type ApiRouter, type Handler, strictRouter } from './router.ts';

/** What can be done with a resource that can only be read. */
export interface ReadActions<R extends ReadableResource> {
  /** @throws {ApiError} 404 when the id is unknown */
  get(id: string): z.output<R['answer']>;
  /**
   * Items older than `before`, which need not exist any more; null: from the newest.
   *
   * @returns at most `limit` of them, newest first
   */
  page(before: string | null, limit: number): z.output<R['answer']>[];
}

/** What can be done with a resource; a change is durable when its promise resolves. */
export interface Actions<R extends Resource> extends ReadActions<R> {
  create(body: z.output<R['create']>): Promise<z.output<R['answer']>>;
  update(id: string, body: z.output<R['update']>): Promise<z.output<R['answer']>>;
  remove(id: string): Promise<void>;
}

/** The checks that come before an operation: who asks, and in which version. */
export interface Guards {
  /** For lists, which read their query themselves. */
  list: Handler[];
  /** For the rest, which have no query. */
  plain: Handler[];
  /** For operations with a body, which they read. */
  withBody: Handler[];
}

/** Routes of the two ways to read a resource. */
export function readRouter<R extends ReadableResource>(
  resource: R,
  actions: ReadActions<R>,
  guards: Guards,
  links: Links,
): ApiRouter {
  const router = strictRouter();
  const path: string = resource.path;
  const uri = links.to(path);
  router.get(path, ...guards.list, (req, res) => {
    const { limit, beforeId } = readPageQuery(resource, queryOf(req.url));
    // One more than asked for: its existence tells that a page follows.
    const found = actions.page(beforeId, limit + 1);
    const items = found.slice(0, limit);
    const last = items.at(-1) as { id: string } | undefined;
    const next = found.length > limit && last ? `${uri}?before_id=${last.id}&limit=${limit}` : null;
    sendJson(res, { [resource.listKey]: items, uri, next_page_uri: next });
  });
  router.get(`${path}/:id`, ...guards.plain, (req, res) => {
    sendJson(res, actions.get(idOf(req)));
  });
  return router;
}

/** Routes of the five ways to use a resource. */
export function resourceRouter<R extends Resource>(
  resource: R,
  actions: Actions<R>,
  guards: Guards,
  links: Links,
): ApiRouter {
  const router = readRouter(resource, actions, guards, links);
  const path: string = resource.path;
  router.post(path, ...guards.withBody, async (req, res) => {
    sendJson(res, await actions.create(readBody<R['create']>(resource.create, 'POST', req.body)), 201);
  });
  router.patch(`${path}/:id`, ...guards.withBody, async (req, res) => {
    sendJson(res, await actions.update(idOf(req), readBody<R['update']>(resource.update, 'PATCH', req.body)));
  });
  router.delete(`${path}/:id`, ...guards.plain, async (req, res) => {
    await actions.remove(idOf(req));
    sendNothing(res);
  });
  return router;
}

/** Refuses query parameters where there are none. */
export const noQuery: Handler = (req, _res, next) => {
  if (queryOf(req.url).size > 0) throw badRequest({ code: 231, text: 'this operation takes no query parameters' });
  next();
};

/** The `:id` of a route that has one. */
export function idOf({ params }: RoutedRequest): string {
  return String(params.id);
}

/** The row, which was looked for by the id in a path. */
export function found<Row>(row: Row | null, resource: Pick<ReadableResource, 'name' | 'unknownIdCode'>): Row {
  if (row === null) throw unknownId(resource);
  return row;
}

function queryOf(url: string): URLSearchParams {
  const mark = url.indexOf('?');
  return new URLSearchParams(mark < 0 ? '' : url.slice(mark + 1));
}
