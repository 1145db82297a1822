import type { ConditionFilters } from '../../management/resources/condition.ts';
import type { Database } from './sql/database.ts';
import { chosenRows, conditionsOf, type ListedBy, type ListPart } from './sql/list-choice.ts';
import { END, flag, json, nullable, type RowOf, Table, tableOf, text } from './sql/table.ts';

/** A message about a condition, to one destination. */
export interface ToldOf {
  readonly destination_id: string;
  readonly rule_id: string;
  /** Id of the message's event. */
  readonly message_id: string;
  /** What it said of this condition. */
  readonly kind: 'begun' | 'over' | 'reminder';
  readonly at: string;
}

/** Why a rule sent nothing when it would have. */
export type WithheldFor = 'quiet hours' | 'silenced' | 'too many messages';

export interface Withheld {
  readonly rule_id: string;
  readonly destination_id: string;
  readonly reason: WithheldFor;
  readonly at: string;
}

const columns = {
  id: text,
  created_at: text,
  condition: text,
  /** Empty: the gateway. */
  subject: text,
  name: text,
  site: nullable(text),
  labels: json<Readonly<Record<string, string>>>(),
  network: nullable(text),
  severity: text,
  message: text,
  remedy: text,
  began_at: text,
  ended_at: nullable(text),
  comes_and_goes: flag,
  /** Whether no further message about it will be sent. */
  settled: flag,
  acknowledged_at: nullable(text),
  acknowledged_by: nullable(text),
  silenced_until: nullable(text),
  silenced_by: nullable(text),
  told: json<readonly ToldOf[]>(),
  withheld: json<readonly Withheld[]>(),
};

export type ConditionRow = RowOf<typeof columns>;

/** 13 months. */
const KEPT_DAYS = 396;
const MAX_KEPT = 100_000;
/** Rows that are deleted at a time. */
const DELETED_AT_ONCE = 500;

const LISTED_BY: ListedBy = {
  searched: ['id', 'condition', "replace(condition, '_', ' ')", 'subject', 'name', 'site', 'message', 'remedy'],
  sorted: {
    name: 'lower(name)',
    condition: 'condition',
    began_at: 'began_at',
    ended_at: `coalesce(ended_at, '${END}')`,
  },
};

/** Messages about one condition that are written down; of further reminders, the last one. */
const MAX_TOLD = 100;

/** What was wrong, when, and who was told. Change it only inside `Database.write`. */
export class ConditionHistory extends Table<typeof columns> {
  /** Those that are not settled, for the one who asks every few seconds; null: nobody does. */
  #unsettled: Map<string, ConditionRow> | null = null;
  readonly #touched = new Set<string>();

  constructor(database: Database) {
    super(database, 'condition_history', columns);
    database.onRowApplied((table, id) => {
      if (table === this.name) this.#touch(id);
    });
  }

  /** Those about which something may have to be sent, oldest first. They are kept in memory until {@link forgetUnsettled}. */
  unsettled(): ConditionRow[] {
    this.#unsettled ??= new Map(this.where('settled = 0 ORDER BY id', []).map((row) => [row.id, row]));
    for (const id of this.#touched) {
      const row = this.get(id);
      if (row === null || row.settled) this.#unsettled.delete(id);
      else this.#unsettled.set(id, row);
    }
    this.#touched.clear();
    return [...this.#unsettled.values()];
  }

  /** Nobody asks any more. */
  forgetUnsettled(): void {
    this.#unsettled = null;
    this.#touched.clear();
  }

  #touch(id: string): void {
    if (this.#unsettled !== null) this.#touched.add(id);
  }

  override insert(row: ConditionRow): void {
    this.#touch(row.id);
    super.insert(row);
  }

  override update(row: ConditionRow): void {
    this.#touch(row.id);
    super.update(row);
  }

  /** Adds a message that was about all of these: one statement for thousands. */
  addTold(ids: readonly string[], entry: ToldOf): void {
    const place = `CASE WHEN json_array_length(told) < ${MAX_TOLD} THEN '$[#]' ELSE '$[#-1]' END`;
    this.#updateAll(ids, `told = json_set(told, ${place}, json(?))`, [JSON.stringify(entry)]);
  }

  addWithheld(ids: readonly string[], entry: Withheld): void {
    this.#updateAll(ids, "withheld = json_insert(withheld, '$[#]', json(?))", [JSON.stringify(entry)]);
  }

  settle(ids: readonly string[]): void {
    this.#updateAll(ids, 'settled = 1', []);
  }

  #updateAll(ids: readonly string[], change: string, parameters: readonly string[]): void {
    for (const id of ids) this.#touch(id);
    this.database.changes.addAny();
    const sql = `UPDATE condition_history SET ${change} WHERE id IN (SELECT value FROM json_each(?))`;
    this.database.run(sql, [...parameters, JSON.stringify(ids)]);
  }

  /** How often something began since a time, which is over again. */
  endedSince(condition: string, subject: string, since: string): number {
    return this.count('condition = ? AND subject = ? AND began_at >= ? AND ended_at IS NOT NULL', [
      ...[condition, subject, since],
    ]);
  }

  /** Whether somebody wants no messages about something, and who and until when; null: nobody. */
  silence(
    condition: string,
    subject: string,
    now: string,
  ): Pick<ConditionRow, 'silenced_until' | 'silenced_by'> | null {
    const sql = 'condition = ? AND subject = ? AND silenced_until > ? ORDER BY silenced_until DESC LIMIT 1';
    return this.where(sql, [condition, subject, now])[0] ?? null;
  }

  /** What nobody wants messages about: conditions and subjects, with a space between. */
  silenced(now: string): ReadonlySet<string> {
    const sql = 'SELECT condition, subject FROM condition_history WHERE silenced_until > ?';
    const rows = this.database.all<Pick<ConditionRow, 'condition' | 'subject'>>(sql, [now]);
    return new Set(rows.map(({ condition, subject }) => `${condition} ${subject}`));
  }

  /** A page of those for which all filters hold. */
  chosen(before: string | null, limit: number, filters: ConditionFilters): ListPart<ConditionRow> {
    const further = conditionsOf(filters, {
      condition: (condition) => ['condition = ?', condition],
      subject: (subject) => ['? IN (subject, name)', subject],
      site: (site) => ['site = ?', site],
      open: (open) => [`ended_at IS ${open === 'true' ? '' : 'NOT '}NULL`],
    });
    return chosenRows(this, LISTED_BY, filters, further, { before, limit });
  }

  /** Those that a message was about. */
  toldBy(messageId: string): ConditionRow[] {
    return this.where(
      "EXISTS (SELECT 1 FROM json_each(told) WHERE json_each.value ->> 'message_id' = ?) ORDER BY id DESC LIMIT ?",
      [messageId, MAX_KEPT],
    );
  }

  /** Forgets the oldest ones. @param now RFC 3339 */
  forgetOld(now: string): void {
    const before = new Date(Date.parse(now) - KEPT_DAYS * 86_400_000).toISOString();
    const sql = `DELETE FROM condition_history WHERE settled = 1 AND id IN (
      SELECT id FROM condition_history WHERE created_at < ? ORDER BY id LIMIT ?)`;
    this.database.run(sql, [before, DELETED_AT_ONCE]);
    const excess = Math.min(DELETED_AT_ONCE, this.count('TRUE', []) - MAX_KEPT);
    if (excess > 0)
      this.database.run(
        'DELETE FROM condition_history WHERE id IN (SELECT id FROM condition_history WHERE settled = 1 ORDER BY id LIMIT ?)',
        [excess],
      );
  }
}

const messageColumns = { id: text, created_at: text, destination_id: text, kind: text, title: text };

/** Messages that were sent, by the ids of their events: those of the last hour count for the limit of a destination. */
export class SentMessages extends tableOf('sent_messages', messageColumns) {
  /** When messages were sent to a destination since a time, oldest first. */
  since(destinationId: string, time: string): string[] {
    return this.where('destination_id = ? AND created_at > ? ORDER BY id', [destinationId, time]).map(
      ({ created_at }) => created_at,
    );
  }

  /** Links in messages are valid for as long as they are kept at least. */
  forgetBefore(time: string): void {
    this.database.run('DELETE FROM sent_messages WHERE created_at < ?', [time]);
  }
}

/** Row of `facts` with how long conditions were seen of which nobody was told yet, by their ids, in milliseconds. */
const SEEN = 'conditions_seen';
/** Further ones wait longer after a restart. */
const MAX_SEEN = 2_000;

export function seenConditions(database: Pick<Database, 'fact'>): ReadonlyMap<string, number> {
  return new Map(Object.entries(JSON.parse(database.fact(SEEN) ?? '{}') as Record<string, number>));
}

/** Only inside {@link Database.write}. */
export function noteSeenConditions(
  database: Pick<Database, 'setFact' | 'forgetFact'>,
  seen: ReadonlyMap<string, number>,
) {
  if (seen.size === 0) database.forgetFact(SEEN);
  else database.setFact(SEEN, JSON.stringify(Object.fromEntries([...seen].slice(0, MAX_SEEN))));
}
