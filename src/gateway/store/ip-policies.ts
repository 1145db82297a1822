import type { Database } from './database.ts';
import { nullable, type RowOf, Table, text } from './table.ts';

const policyColumns = { id: text, created_at: text, description: nullable(text), metadata: nullable(text) };
const ruleColumns = { ...policyColumns, ip_policy_id: text, cidr: text, action: text };

export type IpPolicyRow = RowOf<typeof policyColumns>;
export type IpPolicyRuleRow = RowOf<typeof ruleColumns>;

/** Named sets of rules about source addresses. */
export const ipPolicies = (database: Database) => new Table(database, 'ip_policies', policyColumns);

/** The rules of all IP policies; they are deleted with their policy. */
export const ipPolicyRules = (database: Database) => new Table(database, 'ip_policy_rules', ruleColumns);
