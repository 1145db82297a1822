import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER } from './members.ts';

export const IpPolicyCreate = body(annotations());
export interface IpPolicyCreate extends z.input<typeof IpPolicyCreate> {}

export const IpPolicyUpdate = IpPolicyCreate;
export interface IpPolicyUpdate extends IpPolicyCreate {}

/** A set of rules for client addresses. */
export const IpPolicy = z.object({ ...COMMON_ANSWER, ...ANNOTATIONS_ANSWER });
export interface IpPolicy extends z.output<typeof IpPolicy> {}

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
