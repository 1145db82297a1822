import { z } from 'zod';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { messageOf, quote } from '../../lib/errors.ts';
import { parseCidr } from '../../lib/network/ip-address.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { Budget } from '../../traffic-policy/cel/budget.ts';
import type { PolicyFrame } from '../../traffic-policy/compile-rules.ts';
import type { Phase, RulesByPhase } from '../../traffic-policy/document.ts';
import type { PolicyRefused } from '../../traffic-policy/policy-errors.ts';
import type { RawAction, RawRule } from '../../traffic-policy/policy-text.ts';
import { checkedPattern, type RegularExpression } from '../../traffic-policy/regular-expression.ts';
import { firstValue } from '../../traffic-policy/scope/header-map.ts';
import { type PreparedAction, policyError } from '../../traffic-policy/steps.ts';
import { verifierOf, whyUnsupported } from '../../traffic-policy/webhooks/providers.ts';

const MAX_CREDENTIALS = 10;
const MAX_RANGES = 1000;
const MAX_PATTERNS = 50;
const MIN_PASSWORD = 8;
const MAX_PASSWORD = 128;

/** SDKs omit empty lists. */
const list = (limit: number) =>
  z
    .array(z.string())
    .max(limit)
    .nullish()
    .transform((values) => values ?? []);

export const BasicAuth = z.object({
  credentials: z
    .array(
      z.object({
        username: z.string(),
        cleartext_password: z.string().nullish(),
        hashed_password: z.string().nullish(),
      }),
    )
    .min(1)
    .max(MAX_CREDENTIALS),
});

/** @param legacy `user:password`: the single pair of older SDKs */
export function basicAuthRule(option: z.output<typeof BasicAuth> | null | undefined, legacy: string): RawAction[] {
  const pairs = (option?.credentials ?? []).map(({ username, cleartext_password, hashed_password }) => {
    if (hashed_password) {
      throw new RpcError(
        'ERR_NGROK_301',
        'BasicAuth: hashed passwords are not supported by this gateway; send cleartext_password',
      );
    }
    return credential(username, cleartext_password ?? '');
  });
  if (legacy !== '') {
    const colon = legacy.indexOf(':');
    pairs.push(credential(legacy.slice(0, Math.max(colon, 0)), legacy.slice(colon + 1)));
  }
  if (pairs.length === 0) return [];
  return [{ type: 'basic-auth', config: { credentials: pairs.map(literal) } }];
}

function credential(username: string, password: string): string {
  if (username === '') throw new RpcError('ERR_NGROK_359', 'BasicAuth: a user name is empty');
  // A user name ends at the first colon (RFC 7617, section 2).
  if (username.includes(':')) throw new RpcError('ERR_NGROK_301', 'BasicAuth: a user name cannot contain a colon');
  if (password.length < MIN_PASSWORD || password.length > MAX_PASSWORD) {
    const range = `${MIN_PASSWORD} to ${MAX_PASSWORD} characters`;
    throw new RpcError('ERR_NGROK_360', `BasicAuth: a password must have ${range}, not ${password.length}`);
  }
  return `${username}:${password}`;
}

export const IpRestrictionOption = z.object({ allow_cidrs: list(MAX_RANGES), deny_cidrs: list(MAX_RANGES) });

/** @param policies comma-separated ids of IP policies; empty for none */
export function ipRestrictionRule(
  option: z.output<typeof IpRestrictionOption> | null | undefined,
  policies: string,
): RawAction[] {
  const { allow_cidrs: allow = [], deny_cidrs: deny = [] } = option ?? {};
  const invalid = [...allow, ...deny].find((range) => parseCidr(range) === null);
  if (invalid !== undefined) {
    throw new RpcError('ERR_NGROK_362', `IPRestriction: ${quote(invalid)} is not an address range`);
  }
  const referenced = policies.split(',').flatMap((id) => id.trim() || []);
  if (allow.length + deny.length + referenced.length === 0) return [];
  if (allow.length + referenced.length === 0) {
    const hint = 'to allow all others, add 0.0.0.0/0 and ::/0';
    throw new RpcError(
      'ERR_NGROK_393',
      `IPRestriction: denied ranges without allowed ones reject every client; ${hint}`,
    );
  }
  return [{ type: 'restrict-ips', config: { allow, deny, ip_policies: referenced } }];
}

export const UserAgentFilter = z.object({ allow: list(MAX_PATTERNS), deny: list(MAX_PATTERNS) });

export function userAgentRule(option: z.output<typeof UserAgentFilter> | null | undefined): RawAction[] {
  if (!option || option.allow.length + option.deny.length === 0) return [];
  const budget = new Budget();
  const [allow = [], deny = []] = [option.allow, option.deny].map((texts) =>
    texts.map((text) => pattern(text, budget)),
  );
  return [{ type: 'user-agent-filter', prepare: () => filterUserAgents(allow, deny) }];
}

function pattern(text: string, budget: Budget) {
  try {
    return checkedPattern(text, '', budget);
  } catch (error) {
    throw new RpcError('ERR_NGROK_2090', `UserAgentFilter: ${quote(text)}: ${messageOf(error)}`);
  }
}

export const WebhookVerification = z.object({ provider: z.string(), secret: z.string().nullish() });

export function webhookRule(option: z.output<typeof WebhookVerification> | null | undefined): RawAction[] {
  if (!option) return [];
  const { provider, secret } = option;
  if (!verifierOf(provider)) throw new RpcError('ERR_NGROK_364', `WebhookVerification: ${whyUnsupported(provider)}`);
  return [{ type: 'verify-webhook', config: { provider, ...(secret && { secret: literal(secret) }) } }];
}

export const CircuitBreaker = z.object({ error_threshold: z.number() });

export function circuitBreakerRule(option: z.output<typeof CircuitBreaker> | null | undefined): RawAction[] {
  const threshold = option?.error_threshold ?? 0;
  if (threshold === 0) return [];
  if (threshold < 0 || threshold > 1) {
    throw new RpcError('ERR_NGROK_361', `CircuitBreaker: the threshold must be between 0 and 1, not ${threshold}`);
  }
  return [{ type: 'circuit-breaker', config: { error_threshold: threshold } }];
}

const REFUSED = policyError(403, 'ERR_NGROK_3211', 'The server does not authorize requests from your user agent.');

/**
 * Rejects requests by their first User-Agent header. Allow patterns win over deny patterns. A request without the header
 * is rejected unless the empty string is allowed (ngrok's documentation, "User Agent Filter").
 */
function filterUserAgents(allow: readonly RegularExpression[], deny: readonly RegularExpression[]): PreparedAction {
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

const PLACE = 'option ';

/** Whether all problems are in options, and none in the policy. */
export function isOfOptions({ problems }: PolicyRefused): boolean {
  return problems.every(({ place }) => place.startsWith(PLACE));
}

export class FrameBuilder {
  readonly #before: RulesByPhase<RawRule> = {};
  readonly #after: RulesByPhase<RawRule> = {};

  /** Adds actions that run before the endpoint's own policy. */
  before(phase: Phase, option: string, actions: readonly RawAction[]): void {
    add(this.#before, phase, option, actions);
  }

  /** Adds actions that run after the policy. */
  after(phase: Phase, option: string, actions: readonly RawAction[]): void {
    add(this.#after, phase, option, actions);
  }

  build(): PolicyFrame {
    return { before: this.#before, after: this.#after };
  }
}

function add(rules: RulesByPhase<RawRule>, phase: Phase, option: string, actions: readonly RawAction[]): void {
  if (actions.length === 0) return;
  rules[phase] = [...(rules[phase] ?? []), { place: PLACE + option, expressions: [], actions }];
}

/** Escapes `${…}` for an action's field, where it would be an expression. */
function literal(text: string): string {
  // A function: in a replacement string, $' has a special meaning.
  return text.replaceAll('${', () => `\${'$'}{`);
}
