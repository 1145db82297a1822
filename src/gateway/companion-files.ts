import { createHash, X509Certificate } from 'node:crypto';
import type { Log } from '../lib/log.ts';
import type { LocalCa } from './certificates/local-ca/local-ca.ts';
import type { Store } from './store/store.ts';

/** Names, in the database, the key of the authority that it was used with last. */
const FACT = 'local_ca';

/**
 * Tells when the files beside the database are not those that it was used with, as after a restore that left them out:
 * the gateway would start, and agents and visitors would merely find that nothing is as it was.
 */
export async function checkCompanionFiles(store: Store, { caPem, caFile }: LocalCa, log: Log): Promise<void> {
  const certificates = store.tlsCertificates.sealedOtherwise();
  if (certificates > 0) {
    log.error({ certificates }, 'the encryption key is another one than that of the private keys in the database');
  }
  const { database } = store;
  const known = database.get<{ value: string }>('SELECT value FROM facts WHERE name = ?', [FACT])?.value;
  const present = fingerprint(caPem);
  if (known === present) return;
  if (known !== undefined) {
    log.error(
      { ca: caFile },
      'the certificate authority is another one than before: whoever trusts the old one stays away',
    );
  }
  if (!database.isDurable) return;
  try {
    await database.write(() =>
      database.run('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)', [FACT, present]),
    );
  } catch (err) {
    log.warn({ err }, 'which certificate authority there is could not be written down');
  }
}

/** Of the key: a renewed certificate is trusted by those who have the one before. */
function fingerprint(caPem: string): string {
  const key = new X509Certificate(caPem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(key).digest('hex');
}
