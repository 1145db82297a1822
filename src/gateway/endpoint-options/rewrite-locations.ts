import type { PolicyResponse } from '../../traffic-policy/policy-subjects.ts';
import type { PreparedAction } from '../../traffic-policy/steps.ts';

/**
 * Makes an upstream's redirects to itself relative, so that they lead to the endpoint: the upstream got another Host than
 * its clients use (ngrok's documentation, "Rewriting the Host header").
 *
 * @param host the Host that the upstream got
 */
export function rewriteLocations(host: string): PreparedAction {
  const origins = [`http://${host}`, `https://${host}`].map((origin) => origin.toLowerCase());
  return {
    ends: false,
    on_http_response: () => (request, response) => {
      rewrite(response, origins);
      request.scope?.changed();
      return undefined;
    },
  };
}

function rewrite({ headers }: PolicyResponse, origins: readonly string[]): void {
  for (let at = 0; at < headers.length; at += 2) {
    if (headers[at]?.toLowerCase() !== 'location') continue;
    const location = headers[at + 1] as string;
    const origin = origins.find((each) => location.toLowerCase().startsWith(each));
    if (origin === undefined) continue;
    const rest = location.slice(origin.length);
    if (rest.startsWith('/')) headers[at + 1] = rest;
    // Otherwise it is another host with the same prefix.
    else if (rest === '' || /^[?#]/.test(rest)) headers[at + 1] = `/${rest}`;
  }
}
