import type { ClientRequest } from './client-message.ts';

/** More header lines than any client sends. */
export const MAX_HEADER_LINES = 200;

/** Returns why a well-formed request must not be proxied, or null. */
export function faultOf(req: ClientRequest): string | null {
  const { rawHeaders } = req;
  if (rawHeaders.length > 2 * MAX_HEADER_LINES) return 'too many headers';
  const hosts = countOf(rawHeaders, 'host');
  if (hosts > 1 || (hosts === 0 && req.httpVersion !== '1.0')) return 'exactly one Host header is required';
  // After CONNECT, the upstream would no longer read HTTP.
  if (req.url?.charCodeAt(0) !== SLASH || req.method === 'CONNECT') return 'the request target must be a path';
  return null;
}

const SLASH = 0x2f;

function countOf(rawHeaders: readonly string[], wanted: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length === wanted.length && name.toLowerCase() === wanted) count++;
  }
  return count;
}
