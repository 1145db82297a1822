import { ipPolicies, ipPolicyRules, ipRestrictions } from '../../../management/resources/ip-policy.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import type { IpPolicyRow, IpPolicyRuleRow, IpRestrictionRow } from '../../store/ip-policies.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { createRow, type Stored, storedActions } from './stored-actions.ts';

export function ipPolicyActions({ store, links }: ApiContext): Actions<typeof ipPolicies> {
  const stored: Stored<typeof ipPolicies, IpPolicyRow> = {
    resource: ipPolicies,
    rows: store.ipPolicies,
    shown: (row) => ({ ...row, uri: links.of(ipPolicies, row.id) }),
    checkRemoval: ({ id }) => {
      const [restriction] = store.ipRestrictions.naming(id);
      if (restriction) throw refuse(400, 1420, `in use: the IP restriction ${restriction.id} uses this IP policy`);
    },
    inUse: [WRONG_VALUE, 'in use: a TLS edge uses this IP policy'],
  };
  return {
    ...storedActions(store.database, stored),
    create: (sent, caller) => createRow(store, stored, sent, caller, (common) => common),
  };
}

export function ipPolicyRuleActions({ store, live, links }: ApiContext): Actions<typeof ipPolicyRules> {
  const { ipPolicyRules: rows } = store;
  const stored: Stored<typeof ipPolicyRules, IpPolicyRuleRow> = {
    resource: ipPolicyRules,
    rows,
    shown: ({ ip_policy_id, ...row }) => ({
      ...row,
      uri: links.of(ipPolicyRules, row.id),
      ip_policy: links.ref(ipPolicies, ip_policy_id),
    }),
    duplicate: [1408, 'cidr: the policy already has a rule for this range'],
  };
  const { update, delete: remove, ...reads } = storedActions(store.database, stored);
  /** Ends sessions of agents that an IP restriction no longer allows. */
  const inEffect = async <T>(policyId: string, done: Promise<T>): Promise<T> => {
    const answer = await done;
    if (store.ipRestrictions.naming(policyId).length > 0) await live.revoke({});
    return answer;
  };
  const policyOf = (id: string) => rows.get(id)?.ip_policy_id ?? '';
  return {
    ...reads,
    update: (id, ...sent) => inEffect(policyOf(id), update(id, ...sent)),
    delete: (id, ...sent) => inEffect(policyOf(id), remove(id, ...sent)),
    create({ cidr, ip_policy_id, action, ...sent }, caller) {
      const created = createRow(store, stored, sent, caller, (common) => {
        if (!store.ipPolicies.get(ip_policy_id)) throw refuse(400, 1402, 'ip_policy_id: no IP policy has this id');
        return { ...common, ip_policy_id, cidr, action };
      });
      return inEffect(ip_policy_id, created);
    },
  };
}

export function ipRestrictionActions({ store, live, links }: ApiContext): Actions<typeof ipRestrictions> {
  const checkPolicies = ({ ip_policy_ids: ids }: Pick<IpRestrictionRow, 'ip_policy_ids'>) => {
    if (ids.every((id) => store.ipPolicies.get(id))) return;
    throw refuse(400, 1801, 'ip_policy_ids: no IP policy has one of these ids');
  };
  const stored: Stored<typeof ipRestrictions, IpRestrictionRow> = {
    resource: ipRestrictions,
    rows: store.ipRestrictions,
    shown: ({ ip_policy_ids: ids, ...row }) => ({
      ...row,
      uri: links.of(ipRestrictions, row.id),
      ip_policies: ids.map((id) => links.ref(ipPolicies, id)),
    }),
    update: (row) => {
      checkPolicies(row);
      store.ipRestrictions.update(row);
    },
  };
  const actions = storedActions(store.database, stored);
  const inEffect = async <T>(answer: Promise<T>): Promise<T> => {
    const answered = await answer;
    await live.revoke({});
    return answered;
  };
  return {
    ...actions,
    update: (...sent) => inEffect(actions.update(...sent)),
    create: ({ type, enforced, ip_policy_ids, ...sent }, caller) => {
      const created = createRow(store, stored, sent, caller, (common) => {
        checkPolicies({ ip_policy_ids });
        const [other] = store.ipRestrictions.where('type = ?', [type]);
        if (other) throw refuse(400, 1802, `type: ${other.id} restricts ${type}; change it, or delete it first`);
        return { ...common, type, enforced, ip_policy_ids };
      });
      return inEffect(created);
    },
  };
}
