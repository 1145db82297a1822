import { createApiKey as createKey, type Row, type Store } from '../../gateway/offline/command-store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { jsonText, note, print, table } from '../output.ts';

const PAGE = 1000;

/**
 * Creates an API key and prints it; also the first one.
 *
 * @param dataDir the gateway's data folder, for the message
 */
export async function createApiKey(
  store: Store,
  { description, json }: { description: string; json?: boolean },
  dataDir: string,
): Promise<void> {
  const { id, token } = await createKey(store, description);
  if (json) return print(jsonText({ id, description, api_key: token }));
  // The key alone goes to standard output, for `export MANAGEMENT_API_KEY=$(…)`.
  note(`API key ${id} of the gateway in ${dataDir}, shown only once:`);
  print(token);
}

/** Prints all API keys without their values, newest first. */
export function listApiKeys(store: Store, { json }: { json?: boolean }): void {
  const keys = allApiKeys(store).map(({ secret_hash: _hash, ...shown }) => shown);
  if (json) return void print(jsonText(keys));
  if (keys.length === 0) {
    note(`No API keys. Create one with: ${ownCommand('gateway api-key create --description laptop')}`);
    return;
  }
  const rows = keys.map((key) => [key.id, key.created_at, key.owner_id ?? '', key.description ?? '']);
  print(table(['ID', 'CREATED', 'OWNER', 'DESCRIPTION'], rows));
}

/**
 * Revokes an API key: requests with it are refused at once, also by a running gateway.
 *
 * @throws {OperatorError} exit code 4 when there is no such key
 */
export async function revokeApiKey(store: Store, id: string): Promise<void> {
  const wasThere = await store.database.write(() => store.apiKeys.delete(id));
  if (!wasThere) {
    throw new OperatorError(`no API key has this id: ${ownCommand('gateway api-key list')} shows the ids`, 4);
  }
  print(`${id} revoked`);
}

function allApiKeys(store: Store): Row<'apiKeys'>[] {
  const keys: Row<'apiKeys'>[] = [];
  for (;;) {
    const page = store.apiKeys.page(keys.at(-1)?.id ?? null, PAGE);
    keys.push(...page);
    if (page.length < PAGE) return keys;
  }
}
