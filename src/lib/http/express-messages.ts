import { IncomingMessage, ServerResponse } from 'node:http';
import type { Express } from 'express';

/**
 * The request and response classes of a server for one Express app: pass them to Node's `createServer`.
 *
 * Express sets the prototype of each request and response, unless it is right already. After that, V8 11.3 (Node 20)
 * shares no hidden class between them, and everything that handles them slows down: without this class the management
 * API answers 2,800 gets a second instead of 5,900.
 */
export class ExpressMessages {
  readonly IncomingMessage = class extends IncomingMessage {};
  readonly ServerResponse = class<Request extends IncomingMessage> extends ServerResponse<Request> {};

  /** Gives instances of both classes the members that the app adds to requests and responses. */
  adopt(app: Express): void {
    app.request = extend(this.IncomingMessage.prototype, app.request);
    app.response = extend(this.ServerResponse.prototype, app.response);
  }
}

function extend<Prototype extends object>(prototype: object, base: Prototype): Prototype {
  return Object.setPrototypeOf(prototype, base);
}

/**
 * Replaces a request target without a valid path, such as `http://name@`, by one that no route serves. Express would
 * answer it with an HTML page.
 */
export function replaceInvalidTarget(req: IncomingMessage): void {
  const { url = '' } = req;
  if (!url.startsWith('/') && !URL.canParse(url, 'http://localhost')) req.url = '/invalid-target';
}
