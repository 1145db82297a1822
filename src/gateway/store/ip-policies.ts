import type { Database } from './sql/database.ts';
import { annotatedColumns, type RowOf, Table, text } from './sql/table.ts';

const ruleColumns = { ...annotatedColumns, ip_policy_id: text, cidr: text, action: text };

export type IpPolicyRow = RowOf<typeof annotatedColumns>;
export type IpPolicyRuleRow = RowOf<typeof ruleColumns>;

/** Named sets of rules about source addresses. */
export const ipPolicies = (database: Database) => new Table(database, 'ip_policies', annotatedColumns);

/** The rules of all IP policies; they are deleted with their policy. */
export const ipPolicyRules = (database: Database) => new Table(database, 'ip_policy_rules', ruleColumns);
