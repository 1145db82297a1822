import type { ClientRequest } from './client-message.ts';

/** More header lines than any client sends; the parser drops surplus ones silently if told a limit, so we count. */
export const MAX_HEADER_LINES = 200;

/**
 * What Node's strict parser lets through although two parties could read it differently, or the
 * upstream could not be sent it.
 *
 * @returns what is wrong, or null
 */
export function faultOf(req: ClientRequest): string | null {
  const { headers, rawHeaders } = req;
  if (rawHeaders.length > 2 * MAX_HEADER_LINES) return 'too many headers';
  const encoding = headers['transfer-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') return 'transfer-encoding other than chunked';
  if (encoding !== undefined && req.httpVersion === '1.0') return 'transfer-encoding in HTTP/1.0';
  if (encoding !== undefined && headers['content-length'] !== undefined) return 'both length and transfer-encoding';
  // Node would refuse a missing one itself, but go on with what follows on the connection.
  const hosts = countOf(rawHeaders, 'host');
  if (hosts > 1 || (hosts === 0 && req.httpVersion !== '1.0')) return 'a request names one Host';
  if (req.url?.charCodeAt(0) !== SLASH) return 'the target is no path';
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

/** Whether a request carries a body; its method says nothing about that. */
export function hasBody(req: ClientRequest): boolean {
  const length = req.headers['content-length'];
  return req.headers['transfer-encoding'] !== undefined || (length !== undefined && Number(length) > 0);
}
