import { type BotUser, botUsers, serviceUsers } from '../../../management/resources/bot-user.ts';
import { type ApiKey, apiKeys, type Credential, credentials } from '../../../management/resources/credential.ts';
import { type ApiKeyRow, type BotUserRow, CREDENTIALS_LISTED_BY, type CredentialRow } from '../../store/accounts.ts';
import { changed } from '../../store/sql/table.ts';
import { issueApiKey, issueCredential } from '../../store/tokens.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { storedActions } from './stored-actions.ts';

export function accountActions(context: ApiContext) {
  return {
    credentials: credentialActions(context),
    apiKeys: apiKeyActions(context),
    botUsers: botUserActions(context),
    serviceUsers: botUserActions(context, serviceUsers),
  };
}

function credentialActions(context: ApiContext): Actions<typeof credentials> {
  const { store, live, links } = context;
  const shown = ({ secret_hash: _, ...row }: CredentialRow): Credential => ({
    ...row,
    uri: links.of(credentials, row.id),
    token: null,
  });
  const stored = storedActions(context, {
    resource: credentials,
    rows: store.credentials,
    listedBy: CREDENTIALS_LISTED_BY,
    shown,
  });
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
function apiKeyActions(context: ApiContext): Actions<typeof apiKeys> {
  const { store, links } = context;
  const shown = ({ secret_hash: _, ...row }: ApiKeyRow): ApiKey => ({
    ...row,
    uri: links.of(apiKeys, row.id),
    token: null,
  });
  return {
    ...storedActions(context, { resource: apiKeys, rows: store.apiKeys, shown }),
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

/** Actions on bot users, and on service users: the same rows under their newer name. Both id prefixes are accepted. */
function botUserActions(
  { store, live, links }: ApiContext,
  view: typeof botUsers | typeof serviceUsers = botUsers,
): Actions<typeof botUsers> {
  const { database, botUsers: rows } = store;
  const shown = (row: BotUserRow): BotUser => {
    const id = withPrefix(row.id, view.idPrefix);
    return { id, uri: links.of(view, id), created_at: row.created_at, name: row.name, active: row.active };
  };
  const stored = (id: string) => found(rows.get(botUserId(id)), view);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before === null ? null : botUserId(before), limit).map(shown),
    create: (body, caller) =>
      database.write(() => {
        const row = { id: store.ids.next('bot'), created_at: store.now(), ...body };
        rows.insert(row);
        return shown(row);
      }, caller),
    async update(id, body, caller) {
      const row = await database.write(() => {
        const next = changed(stored(id), body);
        rows.update(next);
        return next;
      }, caller);
      if (!row.active) await live.revoke({ credentialIds: store.credentials.idsOfOwner(row.id) });
      return shown(row);
    },
    async delete(id, _body, caller) {
      const credentialIds = await database.write(() => {
        const row = stored(id);
        const owned = store.credentials.idsOfOwner(row.id);
        rows.delete(row.id);
        return owned;
      }, caller);
      await live.revoke({ credentialIds });
    },
  };
}

/** The id under which a bot user is stored, for either prefix; other ids are returned unchanged. */
function botUserId(id: string): string {
  return id.startsWith(serviceUsers.idPrefix) ? withPrefix(id, botUsers.idPrefix) : id;
}

function withPrefix(id: string, prefix: string): string {
  return prefix + id.slice(id.indexOf('_') + 1);
}
