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
    const { on_http_request: rules } = JSON.parse(policy);
    const [action] = rules[0].actions;
    return action.type === TYPE && Array.isArray(action.config.endpoints) ? action.config : null;
  } catch {
    return null;
  }
}
