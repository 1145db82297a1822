import type { ClientRequest } from './client-message.ts';

/**
 * The name in a Host header or SNI, as endpoints are registered: in lower case, without port, and without the trailing dot
 * of an absolute name.
 */
export function hostNameOf(host: string): string {
  const colon = host.indexOf(':', host.startsWith('[') ? host.indexOf(']') : 0);
  let name = colon === -1 ? host : host.slice(0, colon);
  if (name.endsWith('.')) name = name.slice(0, -1);
  return name.toLowerCase();
}

export const MAX_HEADER_LINES = 200;

/** Returns why a well-formed request must not be proxied, or null. */
export function faultOf(req: ClientRequest): string | null {
  const { rawHeaders } = req;
  if (rawHeaders.length > 2 * MAX_HEADER_LINES) return 'too many headers';
  const hosts = countOf(rawHeaders, 'host');
  if (hosts > 1 || (hosts === 0 && req.httpVersion !== '1.0')) return 'exactly one Host header is required';
  if (!HOST.test(req.headers.host ?? '')) return 'malformed Host header';
  // HTTP/1.0 clients may leave it out, and others may leave it empty (RFC 9112, 3.2).
  if (hostNameOf(req.headers.host ?? '') === '') return 'a Host header with a name is required';
  // After CONNECT, the upstream would no longer read HTTP.
  if (req.url?.charCodeAt(0) !== SLASH || req.method === 'CONNECT') return 'the request target must be a path';
  // Only clients use fragments (RFC 9110, 4.1).
  if (req.url.includes('#')) return 'the request target must not contain a fragment';
  return null;
}

/** A name or address, perhaps with a port (RFC 9110, 7.2). */
const HOST = /^(?:\[[0-9a-f:.]+\]|[\w.~%!$&'()*+,;=-]*)(?::\d*)?$/i;
const SLASH = 0x2f;

function countOf(rawHeaders: readonly string[], wanted: string): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length === wanted.length && name.toLowerCase() === wanted) count++;
  }
  return count;
}
