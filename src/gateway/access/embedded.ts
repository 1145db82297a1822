import { issueCredential } from '../store/issue-token.ts';
import type { Store } from '../store/store.ts';

/** Row of `facts` with the bot user's id: its name is not unique. */
const FACT = 'embedded_bot_user';

/**
 * Issues the authtoken of the agent in the gateway's process. Its bot user is created once; its authtoken is replaced at
 * every start and never stored, so that it cannot be stolen from the disk.
 *
 * @returns the authtoken
 */
export function issueEmbeddedAuthtoken(store: Store): Promise<string> {
  return store.database.write(() => {
    const ownerId = embeddedBotUser(store);
    for (const id of store.credentials.idsOfOwner(ownerId)) {
      if (store.credentials.get(id)?.metadata === FACT) store.credentials.delete(id);
    }
    const description = 'the agent in this process; replaced at every start';
    return issueCredential(store, { description, metadata: FACT, owner_id: ownerId, acl: [] }).token;
  });
}

function embeddedBotUser({ database, botUsers, ids, now }: Store): string {
  const known = database.get<{ value: string }>('SELECT value FROM facts WHERE name = ?', [FACT]);
  if (known && botUsers.get(known.value)) return known.value;
  const row = { id: ids.next('bot'), created_at: now(), name: 'embedded agent', active: true };
  botUsers.insert(row);
  database.run('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)', [FACT, row.id]);
  return row.id;
}
