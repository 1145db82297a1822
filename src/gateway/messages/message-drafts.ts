import type { Message } from '../events/message.ts';
import type { ConditionRow, ToldOf, WithheldFor } from '../store/condition-history.ts';
import type { Row } from '../store/store.ts';
import { timeZoneOf } from './message-rules.ts';
import { by, type FleetSizes, groupsOf, MessageWords } from './message-words.ts';

/** Messages to one destination within an hour; the last one is a summary. */
export const MESSAGES_AN_HOUR = 20;

type Rule = Row<'messageRules'>;

/** A notification of a condition that is due for a destination. */
export interface Due {
  readonly row: ConditionRow;
  readonly rule: Rule;
  readonly kind: ToldOf['kind'] | 'missed';
}

/** What is due for a destination now, and what else there is. */
export interface Situation {
  readonly destination: string;
  readonly due: readonly Due[];
  /** All conditions about which something may have to be sent. */
  readonly rows: readonly ConditionRow[];
  readonly fleet: FleetSizes;
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** A message, and what it says of which conditions. */
export interface Drafted {
  readonly content: Omit<Message, 'links' | 'incident'>;
  readonly incident: string | null;
  readonly told: readonly { readonly row: ConditionRow; readonly rule: Rule; readonly kind: ToldOf['kind'] }[];
}

/** The messages to a destination: one for each group, or a summary. @param left how many it may get in this hour, one or more */
export function draftsOf(situation: Situation, left: number): Drafted[] {
  const { due, destination } = situation;
  const drafts = groupDrafts(situation);
  const isTooMany = drafts.length > 1 && drafts.length > left - 1;
  const isSummed = due.some(({ row, kind }) => kind === 'missed' || heldBack(row, destination) !== null);
  return isTooMany || (isSummed && drafts.length > 1) ? [summary(situation, isTooMany)] : drafts;
}

function groupDrafts(situation: Situation): Drafted[] {
  const { due, destination } = situation;
  const of = (kind: Due['kind']) => due.filter((each) => each.kind === kind);
  const [reminders, missed] = [of('reminder'), of('missed')];
  return [
    ...begunDrafts(of('begun'), situation),
    ...[...by(reminders, ({ row }) => incidentOf(row, destination)).values()].flatMap((same) =>
      begunDrafts(same, situation, incidentOf(same[0]?.row, destination)),
    ),
    ...overDrafts(of('over'), situation),
    ...(missed.length > 0 ? [summary({ ...situation, due: missed }, false)] : []),
  ];
}

/** @param incident the message that these are reminders of; null: they are none */
function begunDrafts(due: readonly Due[], { fleet, now }: Situation, incident: string | null = null): Drafted[] {
  const rules = rulesOf(due);
  return groupsOf(
    due.map(({ row }) => row),
    fleet,
  ).map((group) => ({
    content: wordsOf(rules.get(group.rows[0].id), now).begun(group, incident !== null),
    incident,
    told: toldOf(group.rows, rules, incident === null ? 'begun' : 'reminder'),
  }));
}

function overDrafts(due: readonly Due[], { destination, rows: all, now }: Situation): Drafted[] {
  const rules = rulesOf(due);
  const incidents = by(due, ({ row }) => incidentOf(row, destination));
  // What was told together is over together; the rest as far as it is of one kind and site.
  const groups = by(
    due.map(({ row }) => row),
    (row) =>
      (incidents.get(incidentOf(row, destination))?.length ?? 0) > 1
        ? incidentOf(row, destination)
        : `${row.condition} ${row.site ?? ''}`,
  );
  return [...groups.values()].flatMap(([first, ...others]) => {
    if (first === undefined) return [];
    const rows = [first, ...others] as const;
    const { left, ended } = leftOf(destination, rows, all);
    const content = wordsOf(rules.get(first.id), now).over(rows, left, ended);
    return [{ content, incident: incidentOf(first, destination), told: toldOf(rows, rules, 'over') }];
  });
}

function summary({ destination, due, rows, fleet, now }: Situation, isTooMany: boolean): Drafted {
  const rules = rulesOf(due);
  const rowsOf = (kind: Due['kind']) => due.flatMap((each) => (each.kind === kind ? [each.row] : []));
  const [begun, over, missed, reminders] = [rowsOf('begun'), rowsOf('over'), rowsOf('missed'), rowsOf('reminder')];
  const isLimited = isTooMany || due.some(({ row }) => heldBack(row, destination) === 'too many messages');
  const why = isLimited
    ? `More than ${MESSAGES_AN_HOUR} messages an hour would have been sent: here is everything in one.`
    : 'This is what happened in the quiet hours, or since.';
  const content = wordsOf(due[0]?.rule, now).summary(
    { begun: groupsOf([...begun, ...reminders], fleet), over: [...by(over, ({ condition }) => condition).values()] },
    { missed, why, ended: leftOf(destination, over, rows).ended },
  );
  const told = [
    ...toldOf(begun, rules, 'begun'),
    ...toldOf(reminders, rules, 'reminder'),
    ...toldOf([...over, ...missed], rules, 'over'),
  ];
  return { content, incident: null, told };
}

/** By the id of the condition. */
const rulesOf = (due: readonly Due[]): ReadonlyMap<string, Rule> => new Map(due.map(({ row, rule }) => [row.id, rule]));

const wordsOf = (rule: Rule | undefined, now: number): MessageWords =>
  new MessageWords(now, rule ? timeZoneOf(rule) : 'UTC');

/** Id of the message by which a destination was told that something began; empty: it was not. */
function incidentOf(row: ConditionRow | undefined, destination: string): string {
  return row?.told.find(({ destination_id }) => destination_id === destination)?.message_id ?? '';
}

/** Why a destination was not notified yet; null: it was, or did not have to be. */
function heldBack({ withheld, told }: ConditionRow, destination: string): WithheldFor | null {
  const last = withheld.filter((each) => each.destination_id === destination && each.reason !== 'silenced').at(-1);
  const lastTold = told.filter(({ destination_id }) => destination_id === destination).at(-1);
  return last !== undefined && (lastTold === undefined || lastTold.at <= last.at) ? last.reason : null;
}

/** What was told with some conditions and is not over, and the incidents that are. @param all that are not settled */
function leftOf(
  destination: string,
  rows: readonly ConditionRow[],
  all: readonly ConditionRow[],
): { left: ConditionRow[]; ended: string[] } {
  const over = new Set(rows.map(({ id }) => id));
  const incidents = new Set(rows.map((row) => incidentOf(row, destination)));
  const left = all.filter(
    (row) => row.ended_at === null && !over.has(row.id) && incidents.has(incidentOf(row, destination)),
  );
  const open = new Set(left.map((row) => incidentOf(row, destination)));
  return { left, ended: [...incidents].filter((incident) => !open.has(incident)) };
}

function toldOf(rows: readonly ConditionRow[], rules: ReadonlyMap<string, Rule>, kind: ToldOf['kind']) {
  return rows.flatMap((row) => {
    const rule = rules.get(row.id);
    return rule ? [{ row, rule, kind }] : [];
  });
}
