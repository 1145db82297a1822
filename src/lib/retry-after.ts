/** Three decades: what asks for more is as good as never. */
const MAX_SECONDS = 1e9;

/**
 * How long a Retry-After header asks to wait, in either of its forms (RFC 9110, section 10.2.3).
 *
 * @param now milliseconds since 1970
 * @returns milliseconds, at least 0; null when there is none that can be read
 */
export function parseRetryAfter(header: string | null | undefined, now = Date.now()): number | null {
  if (header === null || header === undefined) return null;
  if (/^\d+$/.test(header)) return Math.min(Number(header), MAX_SECONDS) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? null : Math.max(0, at - now);
}
