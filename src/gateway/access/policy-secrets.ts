import { credentials } from '../../management/resources/credential.ts';
import type { Store } from '../store/store.ts';

/**
 * Reads secrets for policies: every one for a policy that the management API has set, and for that of an agent those of vaults
 * that the owner of its authtoken has. Read for each request: a change, also of who may read, takes effect on the next one.
 *
 * @returns a function of the authtoken's, cloud endpoint's or TLS edge's id whose policy it is; null: it cannot have such a secret
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
