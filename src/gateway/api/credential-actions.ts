import { type ApiKey, apiKeys } from '../../management/resources/api-key.ts';
import { type Credential, credentials } from '../../management/resources/credential.ts';
import type { ApiKeyRow } from '../store/api-keys.ts';
import { changed } from '../store/changed.ts';
import type { CredentialRow } from '../store/credentials.ts';
import { issueApiKey, issueCredential } from '../store/issue-token.ts';
import type { ApiContext } from './api-context.ts';
import { botUserId } from './bot-user-actions.ts';
import { refuse } from './refuse.ts';
import { type Actions, found } from './resource-router.ts';

/** Actions on credentials: the authtokens of agents. */
export function credentialActions(context: ApiContext): Actions<typeof credentials> {
  const { store, live, links } = context;
  const { database, credentials: rows } = store;
  const shown = ({ secret_hash: _, ...row }: CredentialRow, token: string | null = null): Credential => ({
    ...row,
    uri: links.of(credentials, row.id),
    token,
  });
  const stored = (id: string) => found(rows.get(id), credentials);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map((row) => shown(row)),
    create: (body) =>
      database.write(() => {
        const { row, token } = issueCredential(store, { ...body, owner_id: activeOwner(context, body.owner_id) });
        return shown(row, token);
      }),
    async update(id, body) {
      const answer = await database.write(() => {
        const row = changed(stored(id), body);
        rows.update(row);
        return shown(row);
      });
      if (body.acl) live.revoke({ narrowedId: id });
      return answer;
    },
    async remove(id) {
      await database.write(() => {
        stored(id);
        rows.delete(id);
      });
      live.revoke({ credentialIds: [id] });
    },
  };
}

/** Actions on API keys. A request may delete its own key, which takes effect immediately. */
export function apiKeyActions(context: ApiContext): Actions<typeof apiKeys> {
  const { store, links } = context;
  const { database, apiKeys: rows } = store;
  const shown = ({ secret_hash: _, ...row }: ApiKeyRow, token: string | null = null): ApiKey => ({
    ...row,
    uri: links.of(apiKeys, row.id),
    token,
  });
  const stored = (id: string) => found(rows.get(id), apiKeys);
  return {
    get: (id) => shown(stored(id)),
    page: (before, limit) => rows.page(before, limit).map((row) => shown(row)),
    create: (body) =>
      database.write(() => {
        const { row, token } = issueApiKey(store, { ...body, owner_id: activeOwner(context, body.owner_id) });
        return shown(row, token);
      }),
    update: (id, body) =>
      database.write(() => {
        const row = changed(stored(id), body);
        rows.update(row);
        return shown(row);
      }),
    remove: (id) =>
      database.write(() => {
        stored(id);
        rows.delete(id);
      }),
  };
}

/** The stored id of a token's owner, which is a bot user; null without an owner. */
function activeOwner({ store }: ApiContext, ownerId: string | undefined): string | null {
  if (ownerId === undefined) return null;
  const owner = store.botUsers.get(botUserId(ownerId));
  if (!owner) throw refuse(400, 634, 'owner_id: no bot user has this id');
  if (!owner.active) throw refuse(400, 636, 'owner_id: the bot user is not active');
  return owner.id;
}
