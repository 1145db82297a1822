import { systemClock } from '../../lib/time/clock.ts';
import { Budget } from '../../traffic-policy/cel/budget.ts';
import type { RegularExpression } from '../../traffic-policy/regular-expression.ts';
import { firstValue } from '../../traffic-policy/scope/header-map.ts';
import type { PolicyError, PreparedAction } from '../../traffic-policy/steps.ts';

const REFUSED: PolicyError = {
  kind: 'error',
  status: 403,
  code: 'ERR_NGROK_3211',
  message: 'The server does not authorize requests from your user agent.',
  headers: [],
};

/**
 * Rejects requests by their first User-Agent header. Allow patterns win over deny patterns. A request without the header
 * is rejected unless the empty string is allowed (ngrok's documentation, "User Agent Filter").
 */
export function filterUserAgents(
  allow: readonly RegularExpression[],
  deny: readonly RegularExpression[],
): PreparedAction {
  return {
    ends: false,
    on_http_request: () => (request) => {
      const agent = firstValue(request.headers, 'user-agent');
      const budget = new Budget(systemClock);
      const matches = (pattern: RegularExpression) => {
        budget.spend(pattern.size * (agent?.length ?? 0));
        return pattern.test(agent ?? '');
      };
      if (allow.some(matches)) return undefined;
      return agent === undefined || deny.some(matches) ? REFUSED : undefined;
    },
  };
}
