import type { IncomingMessage } from 'node:http';

/**
 * Replaces a request target without a valid path, such as `http://name@`, by one that no route serves. Express would
 * answer it with an HTML page.
 */
export function replaceInvalidTarget(req: IncomingMessage): void {
  const { url = '' } = req;
  if (!url.startsWith('/') && !URL.canParse(url, 'http://localhost')) req.url = '/invalid-target';
}
