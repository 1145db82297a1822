import { type BotUser, botUsers, serviceUsers } from '../../../management/resources/bot-user.ts';
import type { BotUserRow } from '../../store/accounts.ts';
import { changed } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, found } from '../operation-router.ts';

/** Actions on bot users, and on service users: the same rows under their newer name. Both id prefixes are accepted. */
export function botUserActions(
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
export function botUserId(id: string): string {
  return id.startsWith(serviceUsers.idPrefix) ? withPrefix(id, botUsers.idPrefix) : id;
}

function withPrefix(id: string, prefix: string): string {
  return prefix + id.slice(id.indexOf('_') + 1);
}
