import { type RequestHandler, Router } from 'express';
import type { z } from 'zod';
import { badRequest, readBody, readPageQuery } from '../../management/request.ts';
import type { ReadableResource, Resource } from '../../management/resources/resource.ts';
import type { Links } from './links.ts';
import { unknownId } from './refuse.ts';

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
  list: RequestHandler[];
  /** For the rest, which have no query. */
  plain: RequestHandler[];
  /** For operations with a body, which they read. */
  withBody: RequestHandler[];
}

/** Routes of the two ways to read a resource. */
export function readRouter<R extends ReadableResource>(
  resource: R,
  actions: ReadActions<R>,
  guards: Guards,
  links: Links,
): Router {
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
    res.json({ [resource.listKey]: items, uri, next_page_uri: next });
  });
  router.get(`${path}/:id`, ...guards.plain, (req, res) => {
    res.json(actions.get(idOf(req.params)));
  });
  return router;
}

/** Routes of the five ways to use a resource. */
export function resourceRouter<R extends Resource>(
  resource: R,
  actions: Actions<R>,
  guards: Guards,
  links: Links,
): Router {
  const router = readRouter(resource, actions, guards, links);
  const path: string = resource.path;
  router.post(path, ...guards.withBody, async (req, res) => {
    res.status(201).json(await actions.create(readBody<R['create']>(resource.create, 'POST', req.body)));
  });
  router.patch(`${path}/:id`, ...guards.withBody, async (req, res) => {
    res.json(await actions.update(idOf(req.params), readBody<R['update']>(resource.update, 'PATCH', req.body)));
  });
  router.delete(`${path}/:id`, ...guards.plain, async (req, res) => {
    await actions.remove(idOf(req.params));
    res.status(204).end();
  });
  return router;
}

/** A router that knows each path in its one spelling only. */
export function strictRouter(): Router {
  return Router({ strict: true, caseSensitive: true });
}

/** Refuses query parameters where there are none. */
export const noQuery: RequestHandler = (req, _res, next) => {
  if (queryOf(req.url).size > 0) throw badRequest({ code: 231, text: 'this operation takes no query parameters' });
  next();
};

/** The `:id` of a route that has one. */
export function idOf(parameters: Record<string, string | string[]>): string {
  return String(parameters.id);
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
