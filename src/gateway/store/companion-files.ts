import { createHash, X509Certificate } from 'node:crypto';
import type { Log } from '../../lib/log/log.ts';
import type { Store } from './store.ts';

/** Row of `facts` that identifies the CA key last used with the database. */
const FACT = 'local_ca';

/**
 * Logs when the CA or the encryption key beside the database are not the ones it was used with, for example after a
 * restore without them. The gateway would start, but agents and clients would no longer trust it.
 */
export async function checkCompanionFiles(
  store: Store,
  { caPem, caFile }: { readonly caPem: string; readonly caFile: string },
  log: Log,
): Promise<void> {
  const certificates = store.tlsCertificates.sealedOtherwise();
  if (certificates > 0) {
    log.error({ certificates }, 'encryption key does not match the private keys in the database');
  }
  const { database } = store;
  const known = database.get<{ value: string }>('SELECT value FROM facts WHERE name = ?', [FACT])?.value;
  const present = fingerprint(caPem);
  if (known === present) return;
  if (known !== undefined) {
    log.error({ ca: caFile }, 'certificate authority replaced: clients that trust the old one cannot connect');
  }
  if (database.unwritable !== null) return;
  try {
    await database.write(() =>
      database.run('INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)', [FACT, present]),
    );
  } catch (err) {
    log.warn({ err }, 'certificate authority not recorded in the database');
  }
}

/** Fingerprint of the key: a renewed certificate with the same key is trusted like the one before. */
function fingerprint(caPem: string): string {
  const key = new X509Certificate(caPem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(key).digest('hex');
}
