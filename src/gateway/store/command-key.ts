import type { Caller } from './sql/database.ts';
import { type Store, timestamp } from './store.ts';
import { issueApiKey } from './tokens.ts';

/** Stands for a command on the gateway's machine where the id of an API key would be. */
export const COMMAND = 'gateway';
export const BY_COMMAND: Caller = { by: COMMAND, from: null };
/** What one-time codes for the dashboard are sealed for; see {@link SecretsBox.keyFor}. */
export const SIGN_IN_PURPOSE = 'dashboard sign-in';

/** Marks the API keys of commands on the gateway's machine. */
const MARK = 'device-agent gateway command';
/** Longer than a command takes; a command that was killed leaves its key behind. */
const LEFT_BEHIND_MS = 600_000;

/** Lets a command on the gateway's machine call the API of the running gateway, with a key that is valid only meanwhile. */
export async function withCommandKey<T>(store: Store, work: (apiKey: string) => Promise<T>): Promise<T> {
  const { database, apiKeys } = store;
  const { row, token } = await database.write(() => {
    const before = timestamp(Date.now() - LEFT_BEHIND_MS);
    database.run('DELETE FROM api_keys WHERE metadata = ? AND created_at < ?', [MARK, before]);
    return issueApiKey(store, { description: 'a command on this machine', metadata: MARK });
  }, null);
  try {
    return await work(token);
  } finally {
    await database.write(() => apiKeys.delete(row.id), null);
  }
}

/** Who made a change, for histories: the id of the API key, or `gateway` for a command on its machine. */
export function keyHolder({ apiKeys }: Pick<Store, 'apiKeys'>, keyId: string): string {
  return apiKeys.get(keyId)?.metadata === MARK ? COMMAND : keyId;
}
