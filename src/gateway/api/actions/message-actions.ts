import type { OPERATIONS } from '../../../management/operations.ts';
import { type ConditionRecord, conditionHistory } from '../../../management/resources/condition.ts';
import { eventDestinations } from '../../../management/resources/event.ts';
import { messageRules } from '../../../management/resources/message-rule.ts';
import { acknowledge, deliveryOf, lastedSeconds, reasonsOf, silence } from '../../messages/condition-records.ts';
import { titleOf } from '../../messages/message-words.ts';
import type { ConditionRow } from '../../store/condition-history.ts';
import { changed } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, type ActionsOf, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { membersOf, shownPart, storedActions } from './stored-actions.ts';

const MAX_RULES = 100;

export function messageActions(context: ApiContext) {
  return { messageRules: ruleActions(context), conditionHistory: historyActions(context) };
}

function ruleActions(context: ApiContext): Actions<typeof messageRules> {
  const { messageRules: rows, eventDestinations: destinations } = context.store;
  const checked = <Row extends { destination_ids: readonly string[] }>(row: Row): Row => {
    if (!row.destination_ids.every((id) => destinations.get(id)))
      throw refuse(400, 5103, 'destination_ids: no event destination has this id');
    return row;
  };
  return storedActions(context, {
    resource: messageRules,
    rows,
    make: (common, { description: _, metadata: __, ...body }) => {
      if (rows.count('TRUE', []) >= MAX_RULES)
        throw refuse(400, 5131, `too many message rules: ${MAX_RULES} are allowed; delete one`);
      return checked({ ...common, ...body, destination_ids: [...new Set(body.destination_ids)] });
    },
    change: (row, body) => checked(changed(row, body)),
  });
}

function historyActions(context: ApiContext): ActionsOf<typeof OPERATIONS.conditionHistory> {
  const { database, conditionHistory: rows } = context.store;
  const stored = (id: string) => found(rows.get(id), conditionHistory);
  const shown = (row: ConditionRow) => showCondition(context, row);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit, filters) => shownPart(rows.chosen(before, limit, filters), shown),
    acknowledge: (id, _body, caller) =>
      database.write(() => {
        acknowledge(context.store, [stored(id)], caller.by);
        return shown(stored(id));
      }, caller),
    silence: (id, { minutes }, caller) =>
      database.write(() => {
        silence(context.store, [stored(id)], minutes, caller.by);
        return shown(stored(id));
      }, caller),
  };
}

function showCondition({ store, links }: ApiContext, row: ConditionRow): ConditionRecord {
  const now = store.now();
  const destinationOf = (id: string) => (store.eventDestinations.get(id) ? links.ref(eventDestinations, id) : null);
  return {
    ...membersOf(row, conditionHistory.answer),
    uri: links.of(conditionHistory, row.id),
    title: titleOf(row),
    duration_seconds: lastedSeconds(row, now),
    told: row.told.map((each) => ({
      rule: store.messageRules.get(each.rule_id) ? links.ref(messageRules, each.rule_id) : null,
      destination: destinationOf(each.destination_id),
      ...{ kind: each.kind, at: each.at, message_id: each.message_id },
      ...deliveryOf(store, each),
    })),
    reasons: reasonsOf(store, row),
  };
}
