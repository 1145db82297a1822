import { ipPolicies } from '../../../management/resources/ip-policy.ts';
import { ipRestrictions } from '../../../management/resources/ip-restriction.ts';
import type { IpRestrictionRow } from '../../store/ip-policies.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { createRow, type Stored, storedActions } from './stored-actions.ts';

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
  /** Ends sessions of agents that it no longer allows. */
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
