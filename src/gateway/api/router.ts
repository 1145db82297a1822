import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router } from 'express';

/** Node's request, with what is found out about it on its way to its operation. */
export interface ApiRequest extends IncomingMessage {
  method: string;
  url: string;
  /** The route that was found, by its pattern. */
  route?: { path: string };
  /** What the pattern's places hold in this path; there once a route is found. */
  params: Readonly<Record<string, string>>;
  body?: unknown;
}

/** Node's response, with what belongs to the request that it answers. */
export interface ApiResponse extends ServerResponse {
  operationId: string;
  /** There once the request has shown that it may be answered. */
  apiKeyId?: string;
}

/** @param next goes on, or fails with the error given */
export type Handler = (req: ApiRequest, res: ApiResponse, next: (error?: unknown) => void) => unknown;

/** What is used here of Express's router. */
export interface ApiRouter extends Handler {
  use(...handlers: Handler[]): unknown;
  get(path: string, ...handlers: Handler[]): unknown;
  post(path: string, ...handlers: Handler[]): unknown;
  patch(path: string, ...handlers: Handler[]): unknown;
  put(path: string, ...handlers: Handler[]): unknown;
  delete(path: string, ...handlers: Handler[]): unknown;
}

/**
 * A router that knows each path in its one spelling only.
 *
 * There is no Express app around it: that gives each request and response another prototype, after which V8 (11.3, of
 * Node 20) shares no hidden class between two of them, and all code that handles them, Node's own too, is several times
 * slower. The types of Express promise the members of those prototypes; ours do not.
 */
export function strictRouter(): ApiRouter {
  return Router({ strict: true, caseSensitive: true }) as unknown as ApiRouter;
}

/** The path that was asked for, without the query, in which somebody may have put what is to be seen by nobody. */
export function pathOf({ url }: ApiRequest): string {
  const mark = url.indexOf('?');
  return mark < 0 ? url : url.slice(0, mark);
}
