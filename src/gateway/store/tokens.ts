import { createHash, timingSafeEqual } from 'node:crypto';
import { createToken } from '../../lib/ids.ts';
import type { ApiKeyRow, CredentialRow } from './accounts.ts';
import type { Store } from './store.ts';

/** The stored hash of a token. One round of SHA-256 suffices for 128 random bits; a slow hash would slow requests down. */
export function hashSecret(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}

export function secretMatches(secret: string, hash: Buffer): boolean {
  return timingSafeEqual(hashSecret(secret), hash);
}

interface TokenOptions {
  description?: string | null | undefined;
  metadata?: string | null | undefined;
  /** `bot_…` */
  owner_id?: string | null | undefined;
}

/** Creates an API key inside a transaction; returns its row and the key, which is not stored. */
export function issueApiKey(store: Store, options: TokenOptions): { row: ApiKeyRow; token: string } {
  const { token, common } = issue(store, 'ak', options);
  store.apiKeys.insert(common);
  return { row: common, token };
}

/**
 * Creates an agent's authtoken inside a transaction; returns its row and the authtoken, which is not stored.
 * @param options.acl access rules; empty allows everything; `random` makes its secret, see {@link createToken}
 */
export function issueCredential(
  store: Store,
  options: TokenOptions & { acl: string[] },
  random?: Buffer,
): { row: CredentialRow; token: string } {
  const { token, common } = issue(store, 'cr', options, random);
  const row = { ...common, acl: options.acl };
  store.credentials.insert(row);
  return { row, token };
}

function issue(store: Store, prefix: 'ak' | 'cr', { description, metadata, owner_id }: TokenOptions, random?: Buffer) {
  const id = store.ids.next(prefix);
  const { token, secret } = createToken(id, random);
  const common: ApiKeyRow = {
    id,
    created_at: store.now(),
    description: description ?? null,
    metadata: metadata ?? null,
    owner_id: owner_id ?? null,
    secret_hash: hashSecret(secret),
  };
  return { token, common };
}

/** Row of `facts` with the bot user's id: its name is not unique. */
const FACT = 'embedded_bot_user';

/** Issues the authtoken of the agent in this process, replaced at every start and never stored: no disk has it. */
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
  const known = database.fact(FACT);
  if (known !== null && botUsers.get(known)) return known;
  const row = { id: ids.next('bot'), created_at: now(), name: 'embedded agent', active: true };
  botUsers.insert(row);
  database.setFact(FACT, row.id);
  return row.id;
}
