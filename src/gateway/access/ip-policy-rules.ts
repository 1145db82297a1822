import type { IpRule } from '../../traffic-policy/ports.ts';
import type { Store } from '../store/store.ts';

/**
 * Looks up the rules of IP policies; null when one of them does not exist. Rules are cached until the next write to the
 * database, so a change takes effect on the next request and all other requests cost nothing.
 */
export function ipPolicyRules({
  database,
  ipPolicies,
  ipPolicyRules: rows,
}: Pick<Store, 'database' | 'ipPolicies' | 'ipPolicyRules'>): (ids: readonly string[]) => readonly IpRule[] | null {
  const known = new WeakMap<readonly string[], { at: number; rules: readonly IpRule[] | null }>();
  const read = (ids: readonly string[]) => {
    if (ids.some((id) => ipPolicies.get(id) === null)) return null;
    return ids.flatMap((id) =>
      rows.where('ip_policy_id = ?', [id]).map(({ cidr, action }) => {
        return { cidr, action: action === 'allow' ? 'allow' : 'deny' } satisfies IpRule;
      }),
    );
  };
  return (ids) => {
    const { commits } = database;
    const last = known.get(ids);
    if (last?.at === commits) return last.rules;
    const rules = read(ids);
    known.set(ids, { at: commits, rules });
    return rules;
  };
}
