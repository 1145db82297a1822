import type { Fetch } from './fetch.ts';

/**
 * Chooses the implementation of `fetch`.
 *
 * @param options.ca PEM of the CA to trust
 * @param options.fetch overrides all others
 * @param protocol of the API's URL: `https:` or `http:`
 * @throws {TypeError} when the options are invalid
 */
export function chooseFetch(
  { ca, fetch: own }: { ca?: string | undefined; fetch?: Fetch | undefined },
  protocol: string,
): Promise<Fetch> {
  if (ca === undefined) return Promise.resolve(own ?? fetch);
  if (own) throw new TypeError('pass ca or fetch, not both');
  // Node accepts any text, and would then trust no CA.
  if (!/-----BEGIN [A-Z0-9 ]*CERTIFICATE-----/.test(ca)) {
    throw new TypeError('ca must be a PEM certificate, not a path');
  }
  return protocol === 'https:' ? trusting(ca) : Promise.resolve(fetch);
}

/** Node's https client is loaded only when a CA is given: other runtimes may have only the global fetch. */
async function trusting(ca: string): Promise<Fetch> {
  return (await import('./fetch-trusting.ts')).fetchTrusting({ ca });
}
