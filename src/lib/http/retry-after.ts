/** Three decades. */
const MAX_SECONDS = 1e9;

/**
 * Parses a Retry-After header, in seconds or as a date (RFC 9110, section 10.2.3).
 *
 * @param date the Date header of the same response: the clock that a date is told by; left out or invalid: this machine's
 * @returns milliseconds to wait, at least 0; null when the header is missing or invalid
 */
export function parseRetryAfter(header: string | null | undefined, date?: string | null): number | null {
  if (header === null || header === undefined) return null;
  if (/^\d+$/.test(header)) return Math.min(Number(header), MAX_SECONDS) * 1000;
  const at = Date.parse(header);
  const sent = Date.parse(date ?? '');
  return Number.isNaN(at) ? null : Math.max(0, at - (Number.isNaN(sent) ? Date.now() : sent));
}
