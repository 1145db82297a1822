import { type ApiKey, apiKeys } from '../../../management/resources/api-key.ts';
import { type Credential, credentials } from '../../../management/resources/credential.ts';
import type { ApiKeyRow, CredentialRow } from '../../store/accounts.ts';
import { issueApiKey, issueCredential } from '../../store/tokens.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { botUserId } from './bot-user-actions.ts';
import { storedActions } from './stored-actions.ts';

export function credentialActions(context: ApiContext): Actions<typeof credentials> {
  const { store, live, links } = context;
  const shown = ({ secret_hash: _, ...row }: CredentialRow): Credential => ({
    ...row,
    uri: links.of(credentials, row.id),
    token: null,
  });
  const stored = storedActions(store.database, { resource: credentials, rows: store.credentials, shown });
  return {
    ...stored,
    create: (body, caller) =>
      store.database.write(() => {
        const { row, token } = issueCredential(store, { ...body, owner_id: activeOwner(context, body.owner_id) });
        return { ...shown(row), token };
      }, caller),
    async update(id, body, caller) {
      const answer = await stored.update(id, body, caller);
      if (body.acl) await live.revoke({ narrowedId: id });
      return answer;
    },
    async delete(id, ...sent) {
      await stored.delete(id, ...sent);
      await live.revoke({ credentialIds: [id] });
    },
  };
}

/** Actions on API keys. A request may delete its own key, which takes effect immediately. */
export function apiKeyActions(context: ApiContext): Actions<typeof apiKeys> {
  const { store, links } = context;
  const shown = ({ secret_hash: _, ...row }: ApiKeyRow): ApiKey => ({
    ...row,
    uri: links.of(apiKeys, row.id),
    token: null,
  });
  return {
    ...storedActions(store.database, { resource: apiKeys, rows: store.apiKeys, shown }),
    create: (body, caller) =>
      store.database.write(() => {
        const { row, token } = issueApiKey(store, { ...body, owner_id: activeOwner(context, body.owner_id) });
        return { ...shown(row), token };
      }, caller),
  };
}

/** The stored id of a token's owner, which is a bot user; null without an owner. */
export function activeOwner({ store }: ApiContext, ownerId: string | undefined): string | null {
  if (ownerId === undefined) return null;
  const owner = store.botUsers.get(botUserId(ownerId));
  if (!owner) throw refuse(400, 634, 'owner_id: no bot user has this id');
  if (!owner.active) throw refuse(400, 636, 'owner_id: the bot user is not active');
  return owner.id;
}
