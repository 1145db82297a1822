import { apiKeys } from '../../../management/resources/credential.ts';
import { people } from '../../../management/resources/person.ts';
import type { Ref } from '../../../management/resources/resource.ts';
import { type Secret, secrets, vaults } from '../../../management/resources/vault.ts';
import { changed } from '../../store/sql/table.ts';
import type { SecretRow } from '../../store/vaults.ts';
import type { ApiContext, Links } from '../api-context.ts';
import { type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { activeOwner } from './credential-actions.ts';
import { storedActions } from './stored-actions.ts';

/** Actions on vaults and their secrets. No answer contains a value. */
export function vaultActions(context: ApiContext) {
  const { store } = context;
  const { vaults: rows, vaultSecrets } = store;
  const changedBy = ({ keyId }: ApiCaller, now = store.now()) => ({ updated_at: now, last_updated_by: keyId });
  const madeBy = ({ created_at }: { created_at: string }, caller: ApiCaller) => ({
    ...changedBy(caller, created_at),
    created_by: caller.keyId,
  });
  return {
    vaults: {
      ...storedActions(context, {
        resource: vaults,
        rows,
        make: (common, { name, owner_id }, caller) => ({
          ...{ ...common, ...madeBy(common, caller), name },
          owner_id: activeOwner(context, owner_id),
        }),
        change: (row, body, caller) => ({ ...changed(row, body), ...changedBy(caller) }),
        duplicate: [23_004, 'name: another vault has this name'],
        inUse: [23_003, 'not empty: delete its secrets first'],
      }),
      listSecrets(id: string, before: string | null, limit: number) {
        const vault = found(rows.get(id), vaults);
        return vaultSecrets.pageOf(vault.id, before, limit).map((row) => showSecret(context, row));
      },
    },
    secrets: storedActions(context, {
      resource: secrets,
      rows: vaultSecrets,
      shown: (row) => showSecret(context, row),
      make: (common, { name, value, ...vault }, caller) => ({
        ...{ ...common, ...madeBy(common, caller), name },
        vault_id: vaultOf(context, vault).id,
        value: vaultSecrets.seal(value, common.id),
      }),
      change: (row, { value, ...body }, caller) => ({
        ...{ ...changed(row, body), ...changedBy(caller) },
        ...(value !== undefined && { value: vaultSecrets.seal(value, row.id) }),
      }),
      duplicate: [24_005, 'name: the vault has a secret with this name'],
    }),
  };
}

function vaultOf(
  { store }: ApiContext,
  named: { vault_id?: string | undefined; vault_name?: string | undefined },
): { id: string } {
  const { vault_id: id, vault_name: name = '' } = named;
  if (id === undefined && name === '') throw refuse(400, 24_008, 'vault_id: is missing; send it or vault_name');
  const vault = id === undefined ? store.vaults.by('name', name) : store.vaults.get(id);
  if (vault) return vault;
  throw id === undefined
    ? refuse(400, 24_009, 'vault_name: no vault has this name')
    : refuse(400, 24_006, 'vault_id: no vault has this id');
}

function showSecret({ store, links }: ApiContext, { value: _, vault_id, ...row }: SecretRow): Secret {
  const vault = store.vaults.get(vault_id);
  return {
    ...row,
    uri: links.of(secrets, row.id),
    vault: links.ref(vaults, vault_id),
    ...(vault && { vault_name: vault.name }),
    created_by: makerOf(links, row.created_by),
    last_updated_by: makerOf(links, row.last_updated_by),
  };
}

function makerOf(links: Links, id: string | null): Ref | null {
  return links.refOrNull(id?.startsWith(people.idPrefix) ? people : apiKeys, id);
}
