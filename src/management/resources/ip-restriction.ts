import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, idOf, Ref } from './members.ts';
import { refused } from './refusal.ts';
import { UNKNOWN_ID } from './resource.ts';

const TYPES = ['dashboard', 'api', 'agent', 'endpoints'] as const;
export type IpRestrictionType = (typeof TYPES)[number];

const MAX_POLICIES = 10;
const policyIds = z
  .array(idOf(['ipp_'], 229))
  .max(MAX_POLICIES, refused(1800, `more than ${MAX_POLICIES} IP policies`));

export const IpRestrictionCreate = body({
  ...annotations(),
  type: z.enum(TYPES, refused(1803, `must be one of ${TYPES.join(', ')}`)),
  enforced: z.boolean().default(false),
  ip_policy_ids: policyIds.min(1, refused(1804, 'must name at least one IP policy')),
});
export interface IpRestrictionCreate extends z.input<typeof IpRestrictionCreate> {
  /** What it restricts. There is one restriction of each type, and the type cannot be changed later. */
  type: IpRestrictionType;
  /** Whether others are refused. Default: false, it has no effect then. */
  enforced?: boolean | undefined;
  /** Only addresses that these policies allow, and none of them denies. */
  ip_policy_ids: string[];
}

export const IpRestrictionUpdate = body({
  ...annotations(),
  enforced: z.boolean().optional(),
  // ngrok's Python client sends an empty list for one that does not change.
  ip_policy_ids: policyIds.transform((ids) => (ids.length > 0 ? ids : undefined)).optional(),
});
export interface IpRestrictionUpdate extends z.input<typeof IpRestrictionUpdate> {}

/** Which addresses may use the API, the dashboard, endpoints, or connect agents. */
export const IpRestriction = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  type: z.string(),
  enforced: z.boolean(),
  ip_policies: z.array(Ref),
});
export interface IpRestriction extends z.output<typeof IpRestriction> {}

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
