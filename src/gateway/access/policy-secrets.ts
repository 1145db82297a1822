import { credentials } from '../../management/resources/credential.ts';
import type { Store } from '../store/store.ts';

/**
 * Reads secrets for policies. A policy that the management API has set can read all of them; the policy of an agent reads those
 * of vaults that belong to the owner of its authtoken. A change, also of who may read, takes effect on the next request.
 *
 * @returns a function of the authtoken's, cloud endpoint's or TLS edge's id; null: there is no such secret, or not for it
 */
export function policySecrets({
  vaults,
  vaultSecrets,
  credentials: authtokens,
}: Pick<Store, 'vaults' | 'vaultSecrets' | 'credentials'>): (
  readerId: string,
  vault: string,
  name: string,
) => string | null {
  return (readerId, vaultName, name) => {
    // The database refuses it. An expression can make it of what a client sends.
    if (vaultName.includes('\0') || name.includes('\0')) return null;
    const vault = vaults.byName(vaultName);
    if (vault === null) return null;
    if (readerId.startsWith(credentials.idPrefix)) {
      const owner = authtokens.get(readerId)?.owner_id ?? null;
      if (owner === null || owner !== vault.owner_id) return null;
    }
    return vaultSecrets.read(vault.id, name);
  };
}
