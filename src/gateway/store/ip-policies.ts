import type { Database } from './sql/database.ts';
import { annotatedColumns, flag, json, type RowOf, Table, tableOf, text } from './sql/table.ts';

const ruleColumns = { ...annotatedColumns, ip_policy_id: text, cidr: text, action: text };

export type IpPolicyRuleRow = RowOf<typeof ruleColumns>;

/** The rules of all IP policies; they are deleted with their policy. */
export const ipPolicyRules = (database: Database) => new Table(database, 'ip_policy_rules', ruleColumns);

const restrictionColumns = { ...annotatedColumns, type: text, enforced: flag, ip_policy_ids: json<string[]>() };

export type IpRestrictionRow = RowOf<typeof restrictionColumns>;

/** Which addresses may use what, at most one row for each type. */
export class IpRestrictions extends tableOf('ip_restrictions', restrictionColumns) {
  naming(ipPolicyId: string): IpRestrictionRow[] {
    return this.where('? IN (SELECT value FROM json_each(ip_policy_ids))', [ipPolicyId]);
  }
}
