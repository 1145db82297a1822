import { type Request, Router } from 'express';
import type { z } from 'zod';
import type { ReadableResource, Resource } from '../../management/resources/resource.ts';
import type { Links } from './api-context.ts';
import type { Guards } from './guards.ts';
import { unknownId } from './refuse.ts';
import { queryOf, readBody, readPageQuery } from './request.ts';

export interface ReadActions<R extends ReadableResource> {
  /** @throws {ApiError} 404 when the id is unknown */
  get(id: string): z.output<R['answer']>;
  /** Items older than `before`, which may have been deleted, newest first; null starts with the newest. */
  page(before: string | null, limit: number): z.output<R['answer']>[];
}

/** The actions of a resource. A change is durable when its promise resolves. */
export interface Actions<R extends Resource> extends ReadActions<R> {
  create(body: z.output<R['create']>): Promise<z.output<R['answer']>>;
  update(id: string, body: z.output<R['update']>): Promise<z.output<R['answer']>>;
  remove(id: string): Promise<void>;
}

/** A router that matches paths exactly, without an optional slash and with their case. */
export function strictRouter(): Router {
  return Router({ strict: true, caseSensitive: true });
}

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
    const { limit, beforeId } = readPageQuery(resource, queryOf(req));
    // One more than requested shows whether another page follows.
    const found = actions.page(beforeId, limit + 1);
    const items = found.slice(0, limit);
    const last = items.at(-1) as { id: string } | undefined;
    const next = found.length > limit && last ? `${uri}?before_id=${last.id}&limit=${limit}` : null;
    res.json({ [resource.listKey]: items, uri, next_page_uri: next });
  });
  router.get(`${path}/:id`, ...guards.plain, (req, res) => {
    res.json(actions.get(idOf(req)));
  });
  return router;
}

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
    res.json(await actions.update(idOf(req), readBody<R['update']>(resource.update, 'PATCH', req.body)));
  });
  router.delete(`${path}/:id`, ...guards.plain, async (req, res) => {
    await actions.remove(idOf(req));
    res.status(204).end();
  });
  return router;
}

export function idOf({ params }: Pick<Request, 'params'>): string {
  return String(params.id);
}

/** @throws {ApiError} 404 when no row has the id of the path */
export function found<Row>(row: Row | null, resource: Pick<ReadableResource, 'name' | 'unknownIdCode'>): Row {
  if (row === null) throw unknownId(resource);
  return row;
}
