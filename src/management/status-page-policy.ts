/** What the action `gateway-status-page` of a traffic policy says of which endpoints. */
export interface StatusPage {
  readonly title: string;
  readonly text?: string;
  readonly endpoints: readonly { readonly url: string; readonly title: string }[];
}

const TYPE = 'gateway-status-page';

/** The traffic policy of a cloud endpoint that is nothing but a status page. */
export function statusPagePolicy(page: StatusPage): string {
  return JSON.stringify({ on_http_request: [{ actions: [{ type: TYPE, config: page }] }] }, null, 2);
}

/** The page of a policy that {@link statusPagePolicy} could have made; null: it is another one, or has other rules, too. */
export function statusPageIn(policy: string): StatusPage | null {
  if (!policy.includes(TYPE)) return null;
  try {
    const parsed = JSON.parse(policy);
    const page: StatusPage = parsed.on_http_request[0].actions[0].config;
    const isAlone = JSON.stringify(parsed) === JSON.stringify(JSON.parse(statusPagePolicy(page)));
    return isAlone && Array.isArray(page.endpoints) ? page : null;
  } catch {
    return null;
  }
}
