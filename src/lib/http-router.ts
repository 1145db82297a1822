import type { IncomingMessage, ServerResponse } from 'node:http';
import { Router, type RouterOptions } from 'express';

/** Node's request, with what a router finds out about it. */
export interface RoutedRequest extends IncomingMessage {
  method: string;
  url: string;
  /** The route that was found, by its pattern. */
  route?: { path: string };
  /** What the pattern's places hold in this path; there once a route is found. */
  params: Readonly<Record<string, string>>;
  body?: unknown;
}

/** @param next goes on, or fails with the error given */
export type Handler<Res extends ServerResponse = ServerResponse> = (
  req: RoutedRequest,
  res: Res,
  next: (error?: unknown) => void,
) => unknown;

/** One path of a router, to be given handlers by method; `all` takes what is left. */
export interface Route<Res extends ServerResponse = ServerResponse> {
  get(...handlers: Handler<Res>[]): this;
  post(...handlers: Handler<Res>[]): this;
  delete(...handlers: Handler<Res>[]): this;
  all(...handlers: Handler<Res>[]): this;
}

/** What is used here of Express's router. */
export interface HttpRouter<Res extends ServerResponse = ServerResponse> extends Handler<Res> {
  use(...handlers: Handler<Res>[]): unknown;
  route(path: string): Route<Res>;
  get(path: string, ...handlers: Handler<Res>[]): unknown;
  post(path: string, ...handlers: Handler<Res>[]): unknown;
  patch(path: string, ...handlers: Handler<Res>[]): unknown;
  put(path: string, ...handlers: Handler<Res>[]): unknown;
  delete(path: string, ...handlers: Handler<Res>[]): unknown;
}

/**
 * A router of Express.
 *
 * There is no Express app around it: that gives each request and response another prototype, after which V8 (11.3, of
 * Node 20) shares no hidden class between two of them, and all code that handles them is several times slower: Node's
 * own, too, and with it everything else that the process serves. The types of Express promise the members of those
 * prototypes; ours do not.
 */
export function httpRouter<Res extends ServerResponse = ServerResponse>(options?: RouterOptions): HttpRouter<Res> {
  return Router(options) as unknown as HttpRouter<Res>;
}

/** The path that was asked for, without the query, in which somebody may have put what is to be seen by nobody. */
export function pathOf({ url }: RoutedRequest): string {
  const mark = url.indexOf('?');
  return mark < 0 ? url : url.slice(0, mark);
}
