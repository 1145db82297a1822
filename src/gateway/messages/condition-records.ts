import { durationText } from '../../lib/terminal-text.ts';
import type { ConditionRecord } from '../../management/resources/condition.ts';
import type { ConditionRow, ToldOf } from '../store/condition-history.ts';
import type { Store } from '../store/store.ts';
import { timestamp } from '../store/store.ts';
import { whyNotConcerned } from './message-rules.ts';

type Delivery = Pick<ConditionRecord['told'][number], 'delivery' | 'error'>;

/** Whether a destination has taken a message, and why not. */
export function deliveryOf(store: Store, { destination_id, message_id }: ToldOf): Delivery {
  const delivery = store.eventDeliveries.get(destination_id);
  if (delivery === null) return { delivery: 'unknown', error: null };
  const refusal = store.refusedEvents.of(destination_id, message_id);
  if (refusal !== null) return { delivery: 'refused', error: refusal.reason };
  if (delivery.delivered >= message_id) return { delivery: 'delivered', error: null };
  return { delivery: 'waiting', error: delivery.error };
}

/** How long it was so, or is by now, in seconds. */
export function lastedSeconds({ began_at, ended_at }: ConditionRow, now: string): number {
  return Math.max(0, Math.round((Date.parse(ended_at ?? now) - Date.parse(began_at)) / 1000));
}

/** For each rule, in words: who was told, or why nobody was. Rules are as they are now. */
export function reasonsOf(store: Store, row: ConditionRow): string[] {
  const rules = store.messageRules.page(null, MAX_RULES);
  if (rules.length === 0) return ['Nobody is told: there are no rules.'];
  const now = store.now();
  return rules.flatMap((rule) => {
    const name = `Rule ${rule.description || rule.id}`;
    const foreign = whyNotConcerned(rule, row);
    const told = row.told.filter(({ rule_id }) => rule_id === rule.id);
    if (told.length === 0 && foreign !== null) return [`${name}: nobody is told, because ${foreign}.`];
    if (rule.destination_ids.length === 0 && told.length === 0)
      return [`${name}: nobody is told: it has no destination.`];
    return [...new Set([...rule.destination_ids, ...told.map(({ destination_id }) => destination_id)])].map(
      (destination) => `${name}: ${wordsFor(store, { row, rule, destination, now })}`,
    );
  });
}

/** More than there can be. */
const MAX_RULES = 1_000;

function wordsFor(
  store: Store,
  {
    row,
    rule,
    destination,
    now,
  }: { row: ConditionRow; rule: { id: string; after_minutes: number }; destination: string; now: string },
): string {
  const place = store.eventDestinations.get(destination)?.address ?? `the deleted destination ${destination}`;
  const of = row.told.filter(({ destination_id }) => destination_id === destination);
  const withheld = row.withheld
    .filter((each) => each.destination_id === destination && each.rule_id === rule.id)
    .at(-1);
  const [begun] = of;
  if (begun !== undefined) return of.map((each) => toldWords(store, each, place)).join(' ');
  if (row.condition === 'event_destination' && row.subject === destination)
    return `${place} is not told: it is the destination that fails.`;
  const silence = store.conditionHistory.silence(row.condition, row.subject, now);
  if (silence?.silenced_until && row.ended_at === null)
    return `${place} is not told: silenced until ${silence.silenced_until} by ${silence.silenced_by}.`;
  if (withheld !== undefined) return `${place} was not told at ${withheld.at}: ${withheld.reason}.`;
  const lasted = lastedSeconds(row, now);
  const wait = `the rule waits for ${rule.after_minutes} min in which a running gateway sees it`;
  return row.ended_at === null
    ? `${place} is not told yet: ${wait}.`
    : `${place} was not told: ${wait}, and it lasted ${durationText(lasted)}.`;
}

const KINDS = { begun: 'was told', reminder: 'was reminded', over: 'was told that it is over' } as const;

function toldWords(store: Store, told: ToldOf, place: string): string {
  const { delivery, error } = deliveryOf(store, told);
  const states = {
    delivered: 'the destination has taken the message',
    waiting:
      error === null ? 'the message waits to be sent' : `the message waits, because the destination fails: ${error}`,
    refused: `the destination has refused the message: ${error}`,
    unknown: 'the destination is deleted',
  };
  return `${place} ${KINDS[told.kind]} at ${told.at}: ${states[delivery]}.`;
}

/** Writes down that somebody has seen conditions. Call it inside `Database.write`. */
export function acknowledge(store: Store, rows: readonly ConditionRow[], by: string): void {
  for (const row of rows)
    store.conditionHistory.update({
      ...row,
      acknowledged_at: row.acknowledged_at ?? store.now(),
      acknowledged_by: row.acknowledged_by ?? by,
    });
}

/** Silences conditions for a time; 0 ends that. Call it inside `Database.write`. */
export function silence(store: Store, rows: readonly ConditionRow[], minutes: number, by: string): void {
  const now = store.now();
  const silenced_until = minutes === 0 ? null : timestamp(Date.parse(now) + minutes * 60_000);
  for (const row of rows) {
    // Earlier ones of the same may be silenced, too.
    const others = store.conditionHistory.where('condition = ? AND subject = ? AND silenced_until > ? AND id <> ?', [
      ...[row.condition, row.subject, now, row.id],
    ]);
    for (const other of others) store.conditionHistory.update({ ...other, silenced_until: null, silenced_by: null });
    store.conditionHistory.update({ ...row, silenced_until, silenced_by: minutes === 0 ? null : by });
  }
}
