import { IpRestriction } from '../../management/resources/ip-policy.ts';
import { columnsOf, json, type RowOf, tableOf } from './sql/table.ts';

const restrictionColumns = { ...columnsOf(IpRestriction.omit({ ip_policies: true })), ip_policy_ids: json<string[]>() };

export type IpRestrictionRow = RowOf<typeof restrictionColumns>;

/** Which addresses may use what, at most one row for each type. */
export class IpRestrictions extends tableOf('ip_restrictions', restrictionColumns) {
  naming(ipPolicyId: string): IpRestrictionRow[] {
    return this.where('? IN (SELECT value FROM json_each(ip_policy_ids))', [ipPolicyId]);
  }
}
