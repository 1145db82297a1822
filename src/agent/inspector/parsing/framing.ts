import type { HeadFacts } from './message-head.ts';
import type { Following } from './message-reader.ts';
import { ParseFailure } from './parse-failure.ts';

/**
 * What follows the head of a request.
 *
 * @throws {ParseFailure} when its end cannot be found
 */
export function afterRequestHead({ length, transferEncoding }: HeadFacts): Following {
  if (transferEncoding === null) return length ?? 0;
  if (isChunked(transferEncoding)) return 'chunks';
  throw new ParseFailure(`transfer encoding ${transferEncoding.slice(0, 40)}`);
}

/**
 * What follows the head of a response; `raw` after an upgrade.
 *
 * @param method of the request
 */
export function afterResponseHead(method: string, status: number, { length, transferEncoding }: HeadFacts): Following {
  if (status === 101 || (method === 'CONNECT' && status >= 200 && status < 300)) return 'raw';
  if (status < 200) return 'head';
  if (method === 'HEAD' || status === 204 || status === 304) return 0;
  if (transferEncoding === null) return length ?? 'until-end';
  return isChunked(transferEncoding) ? 'chunks' : 'until-end';
}

function isChunked(transferEncoding: string): boolean {
  return /(?:^|,)[ \t]*chunked$/.test(transferEncoding);
}
