import { z } from 'zod';
import { parseCidr } from '../../lib/network/ip-address.ts';
import { type Refusal, refused } from './refusal.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, idOf, parsed, Ref, UNKNOWN_ID } from './resource.ts';

export const IpPolicyCreate = body(annotations());
export type IpPolicyCreate = z.input<typeof IpPolicyCreate>;

export const IpPolicyUpdate = IpPolicyCreate;
export type IpPolicyUpdate = IpPolicyCreate;

export const IpPolicy = z
  .object({ ...COMMON_ANSWER, ...ANNOTATIONS_ANSWER })
  .describe('A set of rules for client addresses.');
export type IpPolicy = z.output<typeof IpPolicy>;

export const ipPolicies = {
  name: 'IP policy',
  path: '/ip_policies',
  idPrefix: 'ipp_',
  listKey: 'ip_policies',
  unknownIdCode: 1402,
  create: IpPolicyCreate,
  update: IpPolicyUpdate,
  answer: IpPolicy,
};

const MISSING = 1405;
const RANGE_PATTERN = /^[0-9A-Fa-f:.]+\/\d{1,3}$/;

/** Returns the canonical form of an address range such as `203.0.113.0/24` or `2001:db8::/32`, or the refusal. */
export function parseRange(text: string): string | Refusal {
  const range = parseCidr(text);
  if (range === null) return { code: 1406, text: 'must be an address range such as 203.0.113.0/24 or 2001:db8::/32' };
  const { prefix, hasHostBits, canonical } = range;
  if (!text.includes('/')) {
    return { code: 1413, text: `the prefix length is missing: use ${text}/${prefix} for this single address` };
  }
  if (hasHostBits) return { code: 1409, text: `the address is not the lowest of its range: use ${canonical}` };
  return canonical;
}

const cidr = parsed(parseRange, MISSING, RANGE_PATTERN).describe(
  'An address range with its lowest address: `203.0.113.0/24` or `2001:db8::/32`.',
);

export const IpPolicyRuleCreate = body({
  ...annotations(),
  cidr,
  ip_policy_id: z
    .string(refused(MISSING, 'is missing or not a string'))
    .pipe(idOf(['ipp_'], 229))
    .describe('The IP policy that gets the rule. It cannot be changed later.'),
  action: z
    .string(refused(MISSING, 'is missing or not a string'))
    .pipe(z.enum(['allow', 'deny'], refused(1422, 'must be allow or deny')))
    .describe('`allow` or `deny`. It cannot be changed later.'),
});
export type IpPolicyRuleCreate = z.input<typeof IpPolicyRuleCreate>;

export const IpPolicyRuleUpdate = body({
  ...annotations(),
  cidr: cidr.optional(),
});
export type IpPolicyRuleUpdate = z.input<typeof IpPolicyRuleUpdate>;

export const IpPolicyRule = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    cidr: z.string().describe('The address range, in canonical form.'),
    action: z.string().describe('`allow` or `deny`.'),
    ip_policy: Ref.describe('The IP policy that has the rule.'),
  })
  .describe('Allows or denies an address range.');
export type IpPolicyRule = z.output<typeof IpPolicyRule>;

export const ipPolicyRules = {
  name: 'IP policy rule',
  path: '/ip_policy_rules',
  idPrefix: 'ipr_',
  listKey: 'ip_policy_rules',
  unknownIdCode: 1404,
  create: IpPolicyRuleCreate,
  update: IpPolicyRuleUpdate,
  answer: IpPolicyRule,
};

const TYPES = ['dashboard', 'api', 'agent', 'endpoints'] as const;
export type IpRestrictionType = (typeof TYPES)[number];

const MAX_POLICIES = 10;
const policyIds = z
  .array(idOf(['ipp_'], 229))
  .max(MAX_POLICIES, refused(1800, `more than ${MAX_POLICIES} IP policies`))
  .describe('Only addresses that these policies allow, and none of them denies.');

const TYPE = 'What it restricts. There is one restriction of each type, and the type cannot be changed later.';
const enforced = z.boolean().describe('Whether others are refused. While false, it has no effect.');

export const IpRestrictionCreate = body({
  ...annotations(),
  type: z.enum(TYPES, refused(1803, `must be one of ${TYPES.join(', ')}`)).describe(TYPE),
  enforced: enforced.default(false),
  ip_policy_ids: policyIds.min(1, refused(1804, 'must name at least one IP policy')),
});
export type IpRestrictionCreate = z.input<typeof IpRestrictionCreate>;

export const IpRestrictionUpdate = body({
  ...annotations(),
  enforced: enforced.optional(),
  // ngrok's Python client sends an empty list for one that does not change.
  ip_policy_ids: policyIds
    .transform((ids) => (ids.length > 0 ? ids : undefined))
    .optional()
    .describe('Replaces all policies. An empty list changes nothing.'),
});
export type IpRestrictionUpdate = z.input<typeof IpRestrictionUpdate>;

export const IpRestriction = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    type: z.string().describe(`What it restricts: ${TYPES.join(', ')}.`),
    enforced,
    ip_policies: z.array(Ref).describe('Only addresses that these policies allow, and none of them denies.'),
  })
  .describe('Which addresses may use the API, the dashboard, endpoints, or connect agents.');
export type IpRestriction = z.output<typeof IpRestriction>;

export const ipRestrictions = {
  name: 'IP restriction',
  path: '/ip_restrictions',
  idPrefix: 'ipx_',
  listKey: 'ip_restrictions',
  unknownIdCode: UNKNOWN_ID,
  create: IpRestrictionCreate,
  update: IpRestrictionUpdate,
  answer: IpRestriction,
};
