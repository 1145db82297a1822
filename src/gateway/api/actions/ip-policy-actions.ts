import { ipPolicies, ipPolicyRules, ipRestrictions } from '../../../management/resources/ip-policy.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import type { IpRestrictionRow } from '../../store/ip-policies.ts';
import { changed } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { storedActions } from './stored-actions.ts';

export function ipPolicyActions(context: ApiContext) {
  const { store } = context;
  return {
    ipPolicies: storedActions(context, {
      resource: ipPolicies,
      rows: store.ipPolicies,
      checkRemoval: ({ id }) => {
        const [restriction] = store.ipRestrictions.naming(id);
        if (restriction) throw refuse(400, 1420, `in use: the IP restriction ${restriction.id} uses this IP policy`);
      },
      inUse: [WRONG_VALUE, 'in use: a TLS edge uses this IP policy'],
    }),
    ipPolicyRules: ipPolicyRuleActions(context),
    ipRestrictions: ipRestrictionActions(context),
  };
}

function ipPolicyRuleActions(context: ApiContext): Actions<typeof ipPolicyRules> {
  const { store, live, links } = context;
  const { ipPolicyRules: rows } = store;
  const actions = storedActions(context, {
    resource: ipPolicyRules,
    rows,
    shown: ({ ip_policy_id, ...row }) => ({
      ...row,
      uri: links.of(ipPolicyRules, row.id),
      ip_policy: links.ref(ipPolicies, ip_policy_id),
    }),
    make: (common, { cidr, ip_policy_id, action }) => {
      if (!store.ipPolicies.get(ip_policy_id)) throw refuse(400, 1402, 'ip_policy_id: no IP policy has this id');
      return { ...common, ip_policy_id, cidr, action };
    },
    duplicate: [1408, 'cidr: the policy already has a rule for this range'],
  });
  /** Ends sessions of agents that an IP restriction no longer allows. */
  const inEffect = async <T>(policyId: string, done: Promise<T>): Promise<T> => {
    const answer = await done;
    if (store.ipRestrictions.naming(policyId).length > 0) await live.revoke({ addresses: true });
    return answer;
  };
  const policyOf = (id: string) => rows.get(id)?.ip_policy_id ?? '';
  return {
    ...actions,
    update: (id, ...sent) => inEffect(policyOf(id), actions.update(id, ...sent)),
    delete: (id, ...sent) => inEffect(policyOf(id), actions.delete(id, ...sent)),
    create: (body, caller) => inEffect(body.ip_policy_id, actions.create(body, caller)),
  };
}

function ipRestrictionActions(context: ApiContext): Actions<typeof ipRestrictions> {
  const { store, live, links } = context;
  const checked = (row: IpRestrictionRow) => {
    if (row.ip_policy_ids.every((id) => store.ipPolicies.get(id))) return row;
    throw refuse(400, 1801, 'ip_policy_ids: no IP policy has one of these ids');
  };
  const actions = storedActions(context, {
    resource: ipRestrictions,
    rows: store.ipRestrictions,
    shown: ({ ip_policy_ids: ids, ...row }) => ({
      ...row,
      uri: links.of(ipRestrictions, row.id),
      ip_policies: ids.map((id) => links.ref(ipPolicies, id)),
    }),
    make: (common, { type, enforced, ip_policy_ids }) => {
      const row = checked({ ...common, type, enforced, ip_policy_ids });
      const [other] = store.ipRestrictions.where('type = ?', [type]);
      if (other) throw refuse(400, 1802, `type: ${other.id} restricts ${type}; change it, or delete it first`);
      return row;
    },
    change: (row, body) => checked(changed(row, body)),
  });
  const inEffect = async <T>(answer: Promise<T>): Promise<T> => {
    const answered = await answer;
    await live.revoke({ addresses: true });
    return answered;
  };
  return {
    ...actions,
    update: (...sent) => inEffect(actions.update(...sent)),
    create: (...sent) => inEffect(actions.create(...sent)),
  };
}
