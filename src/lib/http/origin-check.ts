import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** Whether a browser says that another site's page sends the request (Fetch Metadata, section 2.3). */
function isFromAnotherSite({ 'sec-fetch-site': site }: IncomingHttpHeaders): boolean {
  return site !== undefined && site !== 'same-origin' && site !== 'none';
}

/**
 * Whether nothing says that the request comes from a page of another origin. Programs send neither `Origin` nor
 * `Sec-Fetch-Site`.
 *
 * @param scheme of the address at which the request arrived
 */
export function isSameOrigin(headers: IncomingHttpHeaders, scheme: 'http' | 'https'): boolean {
  const { origin, host = '' } = headers;
  if (isFromAnotherSite(headers)) return false;
  return origin === undefined || origin.toLowerCase() === `${scheme}://${host.toLowerCase()}`;
}

/**
 * Whether a request with a cookie comes from a page of this very host (CSRF). Neighbours below the same site count as the same
 * site for the browser, which sends them the cookie: only `Origin` and `Sec-Fetch-Site` tell them apart.
 */
export function isOwnPage({ method = '', headers }: Pick<IncomingMessage, 'method' | 'headers'>): boolean {
  // Browsers name the origin with every request that changes something.
  const needsOrigin = method !== 'GET' && method !== 'HEAD';
  return isSameOrigin(headers, 'https') && !(needsOrigin && headers.origin === undefined);
}
