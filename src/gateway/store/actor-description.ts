import type { Store } from './store.ts';

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
