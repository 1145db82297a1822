import type { Database } from './sql/database.ts';
import { annotatedColumns, flag, json, type RowOf, Table, text } from './sql/table.ts';

const columns = { ...annotatedColumns, type: text, enforced: flag, ip_policy_ids: json<string[]>() };

export type IpRestrictionRow = RowOf<typeof columns>;

/** Which addresses may use what, at most one row for each type. */
export class IpRestrictions extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'ip_restrictions', columns);
  }

  naming(ipPolicyId: string): IpRestrictionRow[] {
    return this.where('? IN (SELECT value FROM json_each(ip_policy_ids))', [ipPolicyId]);
  }
}
