import type { PolicyResponse } from '../../traffic-policy/policy-subjects.ts';
import type { PreparedAction } from '../../traffic-policy/steps.ts';

/**
 * Makes an upstream's redirects to itself lead to the endpoint again, for it was told another Host than its clients know
 * (ngrok's documentation, "Rewriting the Host header"). They become relative: an endpoint can have many names.
 *
 * @param host what the upstream was told
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
    // Else it would be another host that begins in the same way.
    else if (rest === '' || /^[?#]/.test(rest)) headers[at + 1] = `/${rest}`;
  }
}
