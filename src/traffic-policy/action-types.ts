interface ActionTraits {
  /** `gateway`: this gateway runs it, and ngrok's cloud all but those named `gateway-…`; `cloud`: only ngrok's cloud does. */
  readonly runsOn: 'gateway' | 'cloud';
  readonly onConnect?: true;
  /** Whether it authenticates clients: an endpoint has at most one such action. */
  readonly authenticates?: true;
  /** Whether it takes less time than measuring it, unless its configuration has expressions. */
  readonly instant?: true;
}

/**
 * All actions in ngrok's documentation, and those of this gateway alone, named `gateway-…`. To add one, add its row here: the compiler then asks for its implementation in
 * actions/actions.ts and for a sample of its configuration in the tests.
 */
const ACTIONS = {
  'add-headers': { runsOn: 'gateway', instant: true },
  'custom-response': { runsOn: 'gateway', instant: true },
  deny: { runsOn: 'gateway', onConnect: true, instant: true },
  'remove-headers': { runsOn: 'gateway', instant: true },
  'ai-gateway': { runsOn: 'cloud' },
  'basic-auth': { runsOn: 'gateway', authenticates: true },
  'circuit-breaker': { runsOn: 'gateway' },
  'close-connection': { runsOn: 'gateway', onConnect: true, instant: true },
  'compress-response': { runsOn: 'gateway' },
  'forward-internal': { runsOn: 'gateway', onConnect: true },
  'gateway-limit-bandwidth': { runsOn: 'gateway', onConnect: true, instant: true },
  'gateway-share-links': { runsOn: 'gateway' },
  'gateway-sign-in': { runsOn: 'gateway', authenticates: true },
  'gateway-status-page': { runsOn: 'gateway', instant: true },
  'gateway-upstream': { runsOn: 'gateway', instant: true },
  'http-request': { runsOn: 'gateway' },
  'jwt-validation': { runsOn: 'gateway', authenticates: true },
  log: { runsOn: 'gateway', onConnect: true },
  oauth: { runsOn: 'gateway', authenticates: true },
  oidc: { runsOn: 'gateway', authenticates: true },
  'openid-connect': { runsOn: 'gateway', authenticates: true },
  'owasp-crs-request': { runsOn: 'cloud' },
  'owasp-crs-response': { runsOn: 'cloud' },
  'rate-limit': { runsOn: 'gateway' },
  redirect: { runsOn: 'gateway' },
  'request-body-find-replace': { runsOn: 'gateway' },
  'response-body-find-replace': { runsOn: 'gateway' },
  'restrict-ips': { runsOn: 'gateway', onConnect: true },
  saml: { runsOn: 'cloud', authenticates: true },
  'set-vars': { runsOn: 'gateway', onConnect: true },
  'sse-find-replace': { runsOn: 'gateway' },
  'terminate-tls': { runsOn: 'gateway', onConnect: true },
  'url-rewrite': { runsOn: 'gateway' },
  'verify-webhook': { runsOn: 'gateway' },
} as const satisfies Readonly<Record<string, ActionTraits>>;

export type ActionType = keyof typeof ACTIONS;

export type GatewayAction = {
  [Type in ActionType]: (typeof ACTIONS)[Type]['runsOn'] extends 'gateway' ? Type : never;
}[ActionType];

export const ACTION_TYPES = Object.keys(ACTIONS) as readonly ActionType[];

export function traitsOf(type: string): ActionTraits | null {
  return Object.hasOwn(ACTIONS, type) ? ACTIONS[type as ActionType] : null;
}
