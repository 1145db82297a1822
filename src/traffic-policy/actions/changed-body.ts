import { nameAt, valueAt } from '../../lib/http/header-fields.ts';

/** Headers that say something of a body that only holds for its bytes as they were. */
const OF_BYTES: ReadonlySet<string> = new Set([
  ...['accept-ranges', 'content-digest', 'content-encoding', 'content-length', 'content-md5', 'digest', 'repr-digest'],
]);

/** Removes from headers what no longer holds once a body has other bytes. */
export function forgetBytes(headers: string[]): void {
  const kept: string[] = [];
  for (let at = 0; at < headers.length; at += 2) {
    const lower = nameAt(headers, at).toLowerCase();
    const value = valueAt(headers, at);
    if (OF_BYTES.has(lower)) continue;
    // A weak validator claims the same meaning only (RFC 9110, section 8.8.1).
    kept.push(nameAt(headers, at), lower === 'etag' && !value.startsWith('W/') ? `W/${value}` : value);
  }
  headers.splice(0, headers.length, ...kept);
}
