import type { Store } from './store.ts';

/** Describes the API keys that have changed something; null: one without a description, or no API key. */
export function actorDescriptions({ apiKeys, auditLog }: Pick<Store, 'apiKeys' | 'auditLog'>) {
  const known = new Map<string, string | null>();
  return (by: string): string | null => {
    if (!by.startsWith('ak_')) return null;
    let text = known.get(by);
    if (text !== undefined) return text;
    const key = apiKeys.get(by);
    // The log has what a deleted key was called.
    const [last] = key === null ? auditLog.find({ object_id: by }, { before: null }, 1) : [];
    const found = key?.description ?? (last?.after ?? last?.before)?.description;
    text = typeof found === 'string' && found !== '' ? found : null;
    known.set(by, text);
    return text;
  };
}
