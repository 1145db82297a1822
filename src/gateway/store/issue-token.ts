import { createToken } from '../../lib/ids.ts';
import type { ApiKeyRow } from './api-keys.ts';
import type { CredentialRow } from './credentials.ts';
import type { Store } from './store.ts';
import { hashSecret } from './tokens.ts';

/** Optional properties of a new token. */
export interface TokenOptions {
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
 * Creates an agent's authtoken; call it inside a transaction.
 *
 * @param options.acl access rules; empty allows everything
 * @param random makes its secret, see {@link createToken}
 * @returns its row and the authtoken, which is not stored
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
