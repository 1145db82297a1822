import type { Express } from 'express';

/** Makes an app ignore conditional requests. Without ETags, Express still answers 304 to `If-None-Match: *`. */
export function answerUnconditionally(app: Express): void {
  app.disable('etag');
  Object.defineProperty(app.request, 'fresh', { value: false });
}
