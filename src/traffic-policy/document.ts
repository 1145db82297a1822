import { z } from 'zod';
import { ApiError } from '../lib/errors.ts';
import { CHECKED_CONFIGS, OPAQUE_ACTIONS } from './action-config.ts';
import { ACTION_TYPES, traitsOf } from './action-types.ts';

export const PHASES = ['on_tcp_connect', 'on_http_request', 'on_http_response', 'on_event_stream_message'] as const;
export type Phase = (typeof PHASES)[number];

const LEGACY_KEYS = ['inbound', 'outbound', 'enabled'] as const;

const TYPE = 'What the action does, such as deny or rate-limit.';
const CONFIG = 'Its configuration; the members depend on the type.';

export const PolicyAction = z.discriminatedUnion(
  'type',
  [
    z.strictObject({
      type: z.literal('add-headers').describe(TYPE),
      config: CHECKED_CONFIGS['add-headers'].describe(CONFIG),
    }),
    z.strictObject({
      type: z.literal('remove-headers').describe(TYPE),
      config: CHECKED_CONFIGS['remove-headers'].describe(CONFIG),
    }),
    z.strictObject({ type: z.literal('deny').describe(TYPE), config: CHECKED_CONFIGS.deny.describe(CONFIG) }),
    z.strictObject({
      type: z.literal('custom-response').describe(TYPE),
      config: CHECKED_CONFIGS['custom-response'].describe(CONFIG),
    }),
    z.strictObject({
      type: z.enum(OPAQUE_ACTIONS).describe(TYPE),
      config: z.record(z.string(), z.unknown()).nullish().describe(CONFIG),
    }),
  ],
  { error: ({ input }) => unknownAction(input) },
);
export type PolicyAction = z.infer<typeof PolicyAction>;

export const PolicyRule = z.strictObject({
  name: z.string().optional().describe('For people; logs and the inspector show it.'),
  expressions: z
    .array(z.string())
    .optional()
    .describe('CEL expressions that must all be true, or else the rule does nothing.'),
  actions: z
    .array(PolicyAction)
    .min(1, 'a rule needs at least one action')
    .describe('What the rule does, in this order.'),
});
export type PolicyRule = z.infer<typeof PolicyRule>;

const Rules = z.array(PolicyRule);

export const MIXED_SHAPES = {
  error: 'inbound, outbound and enabled cannot be mixed with the phases on_…',
  // By default, zod would report this only when everything else is valid.
  when: ({ value }: { value: unknown }) => typeof value === 'object' && value !== null,
};

/** A policy in the legacy shape (`inbound`, `outbound`), or in the current one with a list for every phase. Parsing keeps it unchanged. */
export const PolicyInput = z
  .strictObject({
    enabled: z.boolean().optional().describe('Legacy shape: false switches the whole policy off; true by default.'),
    inbound: Rules.optional().describe('Legacy shape: rules for requests, or for connections of tcp and tls tunnels.'),
    outbound: Rules.optional().describe('Legacy shape: rules for responses.'),
    on_tcp_connect: Rules.optional().describe('Rules for each new connection.'),
    on_http_request: Rules.optional().describe('Rules for each request, before the upstream gets it.'),
    on_http_response: Rules.optional().describe('Rules for each response, before the client gets it.'),
    on_event_stream_message: Rules.optional().describe('Rules for each server-sent event.'),
  })
  .refine((input) => !(isLegacy(input) && PHASES.some((phase) => phase in input)), MIXED_SHAPES);
export type PolicyInput = z.infer<typeof PolicyInput>;

export type RulesByPhase<Rule> = { [phase in Phase]?: Rule[] };

export type TrafficPolicyDocument = RulesByPhase<PolicyRule>;

/** The part of a rule that determines its phase. */
interface PlacedRule {
  readonly actions: readonly { readonly type: string }[];
}

interface EitherShape<Rule> {
  enabled?: boolean | undefined;
  inbound?: Rule[] | undefined;
  outbound?: Rule[] | undefined;
  on_tcp_connect?: Rule[] | undefined;
  on_http_request?: Rule[] | undefined;
  on_http_response?: Rule[] | undefined;
  on_event_stream_message?: Rule[] | undefined;
}

export class PolicyNotApplicable extends ApiError {
  constructor(place: string, problem: string) {
    super(400, 'ERR_AGENT_POLICY_NOT_APPLICABLE', `policy.${place}: ${problem}`, { details: { [place]: problem } });
  }
}

type Protocol = 'http' | 'tcp' | 'tls';

/**
 * @param protocol of the tunnel
 * @returns only the phases that the input has; empty for a disabled legacy policy
 * @throws {PolicyNotApplicable} for the first rule that the protocol does not support
 */
export function toTrafficPolicy<Rule extends PlacedRule>(
  input: EitherShape<Rule>,
  protocol: Protocol,
): RulesByPhase<Rule> {
  if (input.enabled === false) return {};
  if (protocol === 'http') return toHttpPolicy(input);
  refuseHttpRules(input, protocol);
  return phasesOf({ on_tcp_connect: isLegacy(input) ? input.inbound : input.on_tcp_connect });
}

/** Rewrites the places in a text about a translated policy to those of its original: `inbound[0]` for `on_http_request[0]`. */
export function withOriginalPlaces(text: string, translated: TrafficPolicyDocument, original: PolicyInput): string {
  return text.replace(/\b(on_\w+)\[(\d+)\]/g, (place, phase: Phase, at: string) => {
    const rule = PHASES.includes(phase) ? translated[phase]?.[Number(at)] : undefined;
    if (rule === undefined) return place;
    for (const list of ['inbound', 'outbound'] as const) {
      const index = original[list]?.indexOf(rule) ?? -1;
      if (index !== -1) return `${list}[${index}]`;
    }
    return place;
  });
}

/**
 * Selects the default policies that a tunnel of this protocol can run. Default policies apply to all tunnels, so rules that
 * do not fit are left out, not rejected. `deny` stays, without its status.
 */
export function defaultsFor(protocol: Protocol, defaults: PolicyInput): TrafficPolicyDocument {
  if (protocol === 'http' || defaults.enabled === false) return toTrafficPolicy(defaults, protocol);
  const rules = isLegacy(defaults) ? defaults.inbound : defaults.on_tcp_connect;
  return phasesOf({ on_tcp_connect: rules?.filter((rule) => runsOnConnect(rule, protocol)).map(withoutHttpStatus) });
}

export function isLegacy(input: object): boolean {
  return LEGACY_KEYS.some((key) => key in input);
}

function toHttpPolicy<Rule extends PlacedRule>(input: EitherShape<Rule>): RulesByPhase<Rule> {
  if (!isLegacy(input)) return phasesOf(input);
  // The only action that an http tunnel must run before HTTP begins.
  const beforeHttp = (rule: Rule) => rule.actions.every((action) => action.type === 'terminate-tls');
  const connecting = input.inbound?.filter(beforeHttp) ?? [];
  return phasesOf({
    on_tcp_connect: connecting.length > 0 ? connecting : undefined,
    on_http_request: input.inbound?.filter((rule) => !beforeHttp(rule)),
    on_http_response: input.outbound,
  });
}

function refuseHttpRules(input: EitherShape<PlacedRule>, protocol: Protocol): void {
  for (const phase of ['outbound', 'on_http_request', 'on_http_response', 'on_event_stream_message'] as const) {
    if (input[phase]?.length) {
      throw new PolicyNotApplicable(phase, `a ${protocol} tunnel carries no HTTP, so these rules can never run`);
    }
  }
  const phase = isLegacy(input) ? 'inbound' : 'on_tcp_connect';
  for (const [ruleAt, rule] of (input[phase] ?? []).entries()) {
    const actionAt = rule.actions.findIndex(needsHttp);
    if (actionAt === -1) continue;
    const type = rule.actions[actionAt]?.type;
    throw new PolicyNotApplicable(
      `${phase}[${ruleAt}].actions[${actionAt}]`,
      `${type} needs HTTP, which a ${protocol} tunnel does not carry`,
    );
  }
}

function needsHttp({ type }: { readonly type: string }): boolean {
  const traits = traitsOf(type);
  return traits !== null && traits.onConnect !== true;
}

function runsOnConnect({ actions, expressions }: PolicyRule, protocol: 'tcp' | 'tls'): boolean {
  if (actions.some(needsHttp)) return false;
  if (protocol === 'tcp' && actions.some(({ type }) => type === 'terminate-tls')) return false;
  return ![...(expressions ?? []), ...templatesIn(actions)].some(readsHttp);
}

function readsHttp(expression: string): boolean {
  return /\b(?:req|res)\.|\b(?:has|get)(?:Req|Res|Query)/.test(expression);
}

/** The strings with expressions, at any depth of a configuration. */
function templatesIn(value: unknown): string[] {
  if (typeof value === 'string') return value.includes('${') ? [value] : [];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(templatesIn) : [];
}

/** Removes the status of `deny`: rejecting a connection means closing it. */
function withoutHttpStatus(rule: PolicyRule): PolicyRule {
  const actions = rule.actions.map((action) => (action.type === 'deny' ? { type: action.type } : action));
  return { ...rule, actions };
}

function phasesOf<Rule>(source: { [phase in Phase]?: Rule[] | undefined }): RulesByPhase<Rule> {
  const document: RulesByPhase<Rule> = {};
  for (const phase of PHASES) {
    const rules = source[phase];
    if (rules) document[phase] = rules;
  }
  return document;
}

function unknownAction(input: unknown): string {
  const type = typeof input === 'object' && input !== null && 'type' in input ? input.type : undefined;
  if (typeof type !== 'string') return 'an action must be an object with a type and, for most actions, a config';
  return `unknown action ${JSON.stringify(type)}; supported: ${ACTION_TYPES.join(', ')}`;
}
