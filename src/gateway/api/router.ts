import type { ServerResponse } from 'node:http';
import { type Handler as AnyHandler, type HttpRouter, httpRouter } from '../../lib/http-router.ts';

/** Node's response, with what belongs to the request that it answers. */
export interface ApiResponse extends ServerResponse {
  operationId: string;
  /** There once the request has shown that it may be answered. */
  apiKeyId?: string;
}

export type Handler = AnyHandler<ApiResponse>;
export type ApiRouter = HttpRouter<ApiResponse>;

/** A router that knows each path in its one spelling only. */
export function strictRouter(): ApiRouter {
  return httpRouter({ strict: true, caseSensitive: true });
}
