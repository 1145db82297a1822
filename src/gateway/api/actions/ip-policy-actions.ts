import {
  type IpPolicy,
  type IpPolicyRule,
  ipPolicies,
  ipPolicyRules,
} from '../../../management/resources/ip-policy.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { isConstraint } from '../../store/sql/database-problems.ts';
import type { IpPolicyRow, IpPolicyRuleRow } from '../../store/tls-edges.ts';
import type { ApiContext } from '../api-context.ts';
import { refuse } from '../refuse.ts';
import type { Actions } from '../resource-router.ts';
import { deleteUnlessUsed, storedActions } from './stored-actions.ts';

export function ipPolicyActions({ store, links }: ApiContext): Actions<typeof ipPolicies> {
  const { database, ipPolicies: rows } = store;
  const shown = (row: IpPolicyRow): IpPolicy => ({ ...row, uri: links.of(ipPolicies, row.id) });
  return {
    ...storedActions(database, {
      resource: ipPolicies,
      rows,
      shown,
      remove: ({ id }) =>
        deleteUnlessUsed(() => rows.delete(id), WRONG_VALUE, 'in use: a TLS edge uses this IP policy'),
    }),
    create: ({ description = null, metadata = null }) =>
      database.write(() => {
        const row = { id: store.ids.next('ipp'), created_at: store.now(), description, metadata };
        rows.insert(row);
        return shown(row);
      }),
  };
}

export function ipPolicyRuleActions({ store, links }: ApiContext): Actions<typeof ipPolicyRules> {
  const { database, ipPolicyRules: rows } = store;
  const shown = ({ ip_policy_id, ...row }: IpPolicyRuleRow): IpPolicyRule => ({
    ...row,
    uri: links.of(ipPolicyRules, row.id),
    ip_policy: links.ref(ipPolicies, ip_policy_id),
  });
  return {
    ...storedActions(database, {
      resource: ipPolicyRules,
      rows,
      shown,
      update: (row) => refuseDuplicate(() => rows.update(row)),
    }),
    create: ({ description = null, metadata = null, cidr, ip_policy_id, action }) =>
      database.write(() => {
        if (!store.ipPolicies.get(ip_policy_id)) throw refuse(400, 1402, 'ip_policy_id: no IP policy has this id');
        const common = { id: store.ids.next('ipr'), created_at: store.now(), description, metadata };
        const row = { ...common, ip_policy_id, cidr, action };
        refuseDuplicate(() => rows.insert(row));
        return shown(row);
      }),
  };
}

function refuseDuplicate(write: () => void): void {
  try {
    write();
  } catch (error) {
    if (isConstraint(error, 'UNIQUE')) throw refuse(400, 1408, 'cidr: the policy already has a rule for this range');
    throw error;
  }
}
