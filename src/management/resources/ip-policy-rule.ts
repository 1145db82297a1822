import { z } from 'zod';
import { parseCidr } from './cidr.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, idOf, parsed, Ref } from './members.ts';
import { refused } from './refusal.ts';

const MISSING = 1405;

export const IpPolicyRuleCreate = body({
  ...annotations(),
  cidr: parsed(parseCidr, MISSING),
  ip_policy_id: z.string(refused(MISSING, 'is missing or not a string')).pipe(idOf(['ipp_'], 229)),
  action: z
    .string(refused(MISSING, 'is missing or not a string'))
    .pipe(z.enum(['allow', 'deny'], refused(1422, 'must be allow or deny'))),
});
export interface IpPolicyRuleCreate extends z.input<typeof IpPolicyRuleCreate> {
  /** Such as `203.0.113.0/24` or `2001:db8::/32`, from the lowest address of the range. */
  cidr: string;
  /** It cannot be changed, nor can `action`. */
  ip_policy_id: string;
}

export const IpPolicyRuleUpdate = body({ ...annotations(), cidr: parsed(parseCidr, MISSING).optional() });
export interface IpPolicyRuleUpdate extends z.input<typeof IpPolicyRuleUpdate> {}

/** Allows or denies one range of addresses. */
export const IpPolicyRule = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  cidr: z.string(),
  action: z.string(),
  ip_policy: Ref,
});
export interface IpPolicyRule extends z.output<typeof IpPolicyRule> {}

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
