import { credentials } from '../../management/resources/credential.ts';
import type { Store } from '../store/store.ts';

/**
 * Reads secrets for policies: all for one that the management API has set, for an agent's those of vaults of its authtoken's
 * owner. A change takes effect on the next request. @returns a function of the payer's id; null: no such secret, or not for
 * it
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
    const vault = vaults.by('name', vaultName);
    if (vault === null) return null;
    if (readerId.startsWith(credentials.idPrefix)) {
      const owner = authtokens.get(readerId)?.owner_id ?? null;
      if (owner === null || owner !== vault.owner_id) return null;
    }
    return vaultSecrets.read(vault.id, name);
  };
}
