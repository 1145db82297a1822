import { BulkAction, type BulkActionFilters, MAX_FAILURES } from '../../management/resources/bulk-action.ts';
import { chosenRows, conditionsOf, type ListedBy, type ListPart } from './sql/list-choice.ts';
import { columnsOf, nullable, type RowOf, tableOf, text } from './sql/table.ts';

const columns = {
  ...columnsOf(BulkAction.omit({ done: true, failed: true, left: true, failures: true })),
  from_address: nullable(text),
};

export type BulkActionRow = RowOf<typeof columns>;

/** A device of a bulk action. */
export interface BulkDevice {
  readonly device_id: string;
  readonly name: string;
}

const LISTED_BY: ListedBy = {
  searched: ['id', 'action', 'labels', 'remove_labels', 'filter', 'by'],
  sorted: { action: 'action', state: 'state' },
};

const KEPT_MS = 90 * 86_400_000;
/** Old rows that are deleted with a new one, at most. */
const DELETED_AT_ONCE = 20;

/** What is done with many devices, and what is left of it. Change it only inside `Database.write`. */
export class BulkActions extends tableOf('bulk_actions', columns) {
  /** A page of those for which all filters hold. */
  chosen(before: string | null, limit: number, filters: BulkActionFilters): ListPart<BulkActionRow> {
    const further = conditionsOf(filters, { state: (state) => ['state = ?', state] });
    return chosenRows(this, LISTED_BY, filters, further, { before, limit });
  }

  /** The oldest one that goes on; null: none. */
  running(): BulkActionRow | null {
    return this.where("state = 'running' ORDER BY id LIMIT 1", [])[0] ?? null;
  }

  /** Begins one with all of its devices. */
  begin(row: BulkActionRow, devices: readonly BulkDevice[]): void {
    this.insert(row);
    const sql = `INSERT INTO bulk_action_devices (action_id, device_id, name, reason)
      SELECT ?, value ->> 'device_id', value ->> 'name', NULL FROM json_each(?)`;
    this.database.run(sql, [row.id, JSON.stringify(devices)]);
  }

  /** Only inside a transaction of nobody's: people did not delete them. @param now RFC 3339 */
  forgetOld(now: string): void {
    const before = new Date(Date.parse(now) - KEPT_MS).toISOString();
    const old = "created_at < ? AND state <> 'running' ORDER BY id LIMIT ?";
    for (const { id } of this.where(old, [before, DELETED_AT_ONCE])) this.delete(id);
  }

  /** Devices that have not had their turn. */
  left(id: string, limit: number): BulkDevice[] {
    const sql = `SELECT device_id, name FROM bulk_action_devices WHERE action_id = ? AND reason IS NULL
      ORDER BY device_id LIMIT ?`;
    return this.database.all<BulkDevice>(sql, [id, limit]);
  }

  /** @param reason why it failed; null: it is done */
  had(id: string, deviceId: string, reason: string | null): void {
    const isDevice = 'WHERE action_id = ? AND device_id = ?';
    if (reason === null) this.database.run(`DELETE FROM bulk_action_devices ${isDevice}`, [id, deviceId]);
    else this.database.run(`UPDATE bulk_action_devices SET reason = ? ${isDevice}`, [reason, id, deviceId]);
    this.database.changes.add('bulk_actions', id);
  }

  /** How far one is. */
  progress({ id, devices }: Pick<BulkActionRow, 'id' | 'devices'>): Pick<BulkAction, 'done' | 'failed' | 'left'> {
    const sql = 'SELECT COUNT(*), COUNT(reason) FROM bulk_action_devices WHERE action_id = ?';
    const [rows, failed] = (this.database.values(sql, [id]) ?? [0, 0]).map(Number) as [number, number];
    return { done: devices - rows, failed, left: rows - failed };
  }

  failures(id: string): BulkAction['failures'] {
    const sql = `SELECT device_id, name, reason FROM bulk_action_devices WHERE action_id = ? AND reason IS NOT NULL
      ORDER BY name, device_id LIMIT ?`;
    return this.database.all(sql, [id, MAX_FAILURES]);
  }
}
