/** CAs and the validity of certificates tolerate some minutes. */
const TOLERATED_MS = 5 * 60_000;
const UNITS = [
  ['days', 86_400_000],
  ['hours', 3_600_000],
  ['minutes', 60_000],
] as const;

/** What TLS reports when a certificate's dates do not fit the clock. */
const DATE_ERRORS: readonly unknown[] = ['CERT_NOT_YET_VALID', 'CERT_HAS_EXPIRED'];

/**
 * Compares this machine's clock with a certificate authority's.
 *
 * @param date `Date` header of its response
 * @param now milliseconds since 1970
 * @returns what is wrong, as a sentence; null when the clocks agree, or the header cannot be read
 */
export function clockProblem(date: string | undefined, now: number): string | null {
  const skew = now - Date.parse(date ?? '');
  if (!(Math.abs(skew) > TOLERATED_MS)) return null;
  const [unit, ms] = UNITS.find(([, each]) => Math.abs(skew) >= 1.5 * each) ?? UNITS[2];
  const amount = `${Math.round(Math.abs(skew) / ms)} ${unit}`;
  return `The clock of this machine shows ${shown(now)}, ${amount} ${skew > 0 ? 'ahead of' : 'behind'} the certificate authority's; set it.`;
}

/** @returns the clock as a possible cause of a failed TLS handshake; empty for other errors */
export function clockHint(error: unknown, now: number): string {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return DATE_ERRORS.includes(code) ? `; the clock of this machine shows ${shown(now)}, set it if that is wrong` : '';
}

function shown(now: number): string {
  return new Date(now).toISOString();
}
