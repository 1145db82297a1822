import type { OPERATIONS } from '../../../management/operations.ts';
import { apiKeys } from '../../../management/resources/credential.ts';
import { people } from '../../../management/resources/person.ts';
import type { Ref } from '../../../management/resources/resource.ts';
import { type Secret, secrets, vaults } from '../../../management/resources/vault.ts';
import { changed } from '../../store/sql/table.ts';
import type { SecretRow, VaultRow } from '../../store/vaults.ts';
import type { ApiContext, Links } from '../api-context.ts';
import { type Actions, type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { activeOwner } from './credential-actions.ts';
import { refusing, type Stored, storedActions } from './stored-actions.ts';

const DUPLICATE_VAULT = [23_004, 'name: another vault has this name'] as const;
const DUPLICATE_SECRET = [24_005, 'name: the vault has a secret with this name'] as const;

export function vaultActions(context: ApiContext): ActionsOf<typeof OPERATIONS.vaults> {
  const { store, links } = context;
  const { database, vaults: rows } = store;
  const stored: Stored<typeof vaults, VaultRow> = {
    resource: vaults,
    rows,
    shown: (row) => ({ ...row, uri: links.of(vaults, row.id) }),
    inUse: [23_003, 'not empty: delete its secrets first'],
  };
  return {
    ...storedActions(database, stored),
    create: ({ description = null, metadata = null, name, owner_id }, caller) =>
      database.write(() => {
        const common = { id: store.ids.next('vault'), description, metadata, ...changedNow(context, caller) };
        const made = {
          created_at: common.updated_at,
          created_by: caller.keyId,
          owner_id: activeOwner(context, owner_id),
        };
        const row = { ...common, ...made, name };
        refusing('UNIQUE', DUPLICATE_VAULT, () => rows.insert(row));
        return stored.shown(row);
      }, caller),
    update: (id, body, caller) =>
      database.write(() => {
        const row = { ...changed(found(rows.get(id), vaults), body), ...changedNow(context, caller) };
        refusing('UNIQUE', DUPLICATE_VAULT, () => rows.update(row));
        return stored.shown(row);
      }, caller),
    listSecrets(id, before, limit) {
      const vault = found(rows.get(id), vaults);
      return store.vaultSecrets.pageOf(vault.id, before, limit).map((row) => showSecret(context, row));
    },
  };
}

/** Actions on secrets. No answer contains a value. */
export function secretActions(context: ApiContext): Actions<typeof secrets> {
  const { store } = context;
  const { database, vaultSecrets: rows } = store;
  const stored = (id: string) => found(rows.get(id), secrets);
  const shown = (row: SecretRow) => showSecret(context, row);
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit) => rows.page(before, limit).map(shown),
    delete: (id, _body, caller) =>
      database.write(() => {
        rows.delete(stored(id).id);
      }, caller),
    create: ({ description = null, metadata = null, name, value, ...vault }, caller) =>
      database.write(() => {
        const id = store.ids.next('secret');
        const common = { id, description, metadata, name, ...changedNow(context, caller) };
        const made = { created_at: common.updated_at, created_by: caller.keyId, vault_id: vaultOf(context, vault).id };
        const row = { ...common, ...made, value: rows.seal(value, id) };
        refusing('UNIQUE', DUPLICATE_SECRET, () => rows.insert(row));
        return shown(row);
      }, caller),
    update: (id, { value, ...body }, caller) =>
      database.write(() => {
        const row = { ...changed(stored(id), body), ...changedNow(context, caller) };
        if (value !== undefined) row.value = rows.seal(value, id);
        refusing('UNIQUE', DUPLICATE_SECRET, () => rows.update(row));
        return shown(row);
      }, caller),
  };
}

function vaultOf(
  { store }: ApiContext,
  named: { vault_id?: string | undefined; vault_name?: string | undefined },
): VaultRow {
  const { vault_id: id, vault_name: name = '' } = named;
  if (id === undefined && name === '') throw refuse(400, 24_008, 'vault_id: is missing; send it or vault_name');
  const vault = id === undefined ? store.vaults.byName(name) : store.vaults.get(id);
  if (vault) return vault;
  throw id === undefined
    ? refuse(400, 24_009, 'vault_name: no vault has this name')
    : refuse(400, 24_006, 'vault_id: no vault has this id');
}

function changedNow({ store }: ApiContext, { keyId }: ApiCaller) {
  return { updated_at: store.now(), last_updated_by: keyId };
}

function showSecret({ store, links }: ApiContext, { value: _, vault_id, ...row }: SecretRow): Secret {
  const vault = store.vaults.get(vault_id);
  return {
    ...row,
    uri: links.of(secrets, row.id),
    vault: links.ref(vaults, vault_id),
    ...(vault && { vault_name: vault.name }),
    created_by: madeBy(links, row.created_by),
    last_updated_by: madeBy(links, row.last_updated_by),
  };
}

function madeBy(links: Links, id: string | null): Ref | null {
  return links.refOrNull(id?.startsWith(people.idPrefix) ? people : apiKeys, id);
}
