import { printableJson } from '../../lib/json-text.ts';
import { policyDifference } from '../../traffic-policy/policy-difference.ts';
import type { AuditFilter, AuditLog, AuditRow } from '../store/audit-log.ts';
import type { EventRow } from '../store/events.ts';
import type { Store } from '../store/store.ts';

/** As it is listed: what is looked for by its object, a text or its bulk action is found among the parts of bulk actions, too. */
export function asListed(filter: AuditFilter): AuditFilter {
  const { object_id, search, part_of } = filter;
  return { ...filter, isWhole: object_id === undefined && !search && part_of === undefined };
}

/** What an event of the audit log has changed in a traffic policy, with secrets masked; left out: nothing, or it cannot be read. */
export function policyDifferenceOf(
  auditLog: Pick<AuditLog, 'policyChange'>,
  { id }: Pick<AuditRow, 'id'>,
): { policy_difference?: string } {
  const change = auditLog.policyChange(id);
  return change === null ? {} : { policy_difference: policyDifference(change.before, change.after) };
}

/** An escape in JSON, and whether it stands for half a surrogate pair. */
const ESCAPE = /\\(?:u(d[89a-f][0-9a-f]{2})|.)/g;

/** An event as destinations get it: ngrok's four members, and who made a change. Printable: agents chose parts of it. */
export function eventJson({ id, created_at, type, before, after, by, from_address }: EventRow): string {
  const event = {
    event_id: id,
    event_type: type,
    event_timestamp: created_at,
    object: after ?? before,
    ...(by !== null && { before: after && before, by, from_address }),
  };
  // JSON.stringify() escapes half a surrogate pair. It is no text: strict receivers would refuse the event.
  const json = JSON.stringify(event).replace(ESCAPE, (found, half) => (half === undefined ? found : '\ufffd'));
  return printableJson(json);
}

type Values = Readonly<Record<string, unknown>>;

/**
 * Describes the API keys and people that have changed something; null: a key without a description, or neither. The log has
 * what those were called that are deleted.
 */
export function actorDescriptions({ apiKeys, people, auditLog }: Pick<Store, 'apiKeys' | 'people' | 'auditLog'>) {
  const known = new Map<string, string | null>();
  const logged = (object_id: string, type: string): Values => {
    const [last] = auditLog.find({ object_id, type }, { before: null }, 1);
    return last?.after ?? last?.before ?? {};
  };
  const described = (by: string): string | null => {
    if (by.startsWith('ak_')) return textOf((apiKeys.get(by) ?? logged(by, 'api_key')).description);
    return by.startsWith('prs_') ? nameOf(people.get(by) ?? logged(by, 'person')) : null;
  };
  return (by: string): string | null => {
    let text = known.get(by);
    if (text === undefined) {
      text = described(by);
      known.set(by, text);
    }
    return text;
  };
}

function nameOf({ email, name }: Values): string | null {
  const [shownEmail, shownName] = [textOf(email), textOf(name)];
  return shownEmail && shownName ? `${shownName} (${shownEmail})` : shownEmail;
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}
