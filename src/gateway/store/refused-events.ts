import type { AuditRow } from './audit-log.ts';
import { flag, type RowOf, tableOf, text } from './sql/table.ts';

/** Of a destination; with as many, it waits: more than a few events that nobody takes mean that something else is wrong. */
export const MAX_REFUSED = 1_000;

const columns = {
  id: text,
  created_at: text,
  destination_id: text,
  event_id: text,
  type: text,
  event_created_at: text,
  reason: text,
  send_again: flag,
};

type RefusableEvent = Pick<AuditRow, 'id' | 'type' | 'created_at'>;
export type RefusedEventRow = RowOf<typeof columns>;

/** Events that destinations have refused, and that were passed over. Change it only inside {@link Database.write}. */
export class RefusedEvents extends tableOf('refused_events', columns) {
  /** A page of a destination's, newest first. */
  pageOf(destinationId: string, before: string | null, limit: number) {
    const values = before === null ? [destinationId, limit] : [destinationId, before, limit];
    return this.where(`destination_id = ?${before === null ? '' : ' AND id < ?'} ORDER BY id DESC LIMIT ?`, values);
  }

  countOf(destinationId: string): number {
    return this.count('destination_id = ?', [destinationId]);
  }

  /** The entry of an event at a destination. */
  of(destinationId: string, eventId: string) {
    return this.where('destination_id = ? AND event_id = ?', [destinationId, eventId])[0] ?? null;
  }

  /** The oldest event of a destination that an operator wants to send again. */
  nextToSend(destinationId: string) {
    return this.where('destination_id = ? AND send_again = 1 ORDER BY event_id LIMIT 1', [destinationId])[0] ?? null;
  }

  /** Adds an event, or what has come of sending it again. @param made id and time of a new entry */
  note(destinationId: string, event: RefusableEvent, reason: string, made: { id: string; created_at: string }): void {
    const known = this.of(destinationId, event.id);
    if (known) {
      this.update({ ...known, reason, send_again: false });
      return;
    }
    const { id: event_id, type, created_at: event_created_at } = event;
    const row = { destination_id: destinationId, event_id, type, event_created_at, reason, send_again: false };
    this.insert({ ...made, ...row });
  }

  /** Deletes the entries of an event that the gateway has forgotten: nobody's change. @returns the destinations' ids */
  forget(eventId: string): string[] {
    const rows = this.where('event_id = ?', [eventId]);
    if (rows.length === 0) return [];
    this.database.changes.addAny();
    this.database.run('DELETE FROM refused_events WHERE event_id = ?', [eventId]);
    return rows.map(({ destination_id }) => destination_id);
  }
}
