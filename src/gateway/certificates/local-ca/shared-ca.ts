import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { OperatorError } from '../../../lib/errors.ts';
import { writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Store } from '../../store/store.ts';
import { type LocalCa, openLocalCa } from './local-ca.ts';

/** Rows of `facts`. */
const CERTIFICATE = 'ca_certificate';
const KEY = 'ca_key';

/**
 * Opens the CA of a gateway with a shared database, which has one CA for all that use it: that of the first one.
 *
 * @throws {OperatorError} as {@link openLocalCa}, and when the folder has another CA
 */
export async function openSharedCa(folder: string, { database, box }: Store, log: Log): Promise<LocalCa> {
  const [certificate, key] = [database.fact(CERTIFICATE), database.fact(KEY)];
  if (certificate !== null && key !== null)
    await restore(folder, certificate, () => box.open(Buffer.from(key, 'base64'), KEY));
  const ca = await openLocalCa(folder, log);
  if (ca.caPem === certificate) return ca;
  const sealed = box.seal(readFileSync(join(folder, 'ca-key.pem'), 'utf8'), KEY).toString('base64');
  const stored = database.write(() => {
    database.setFact(CERTIFICATE, ca.caPem);
    database.setFact(KEY, sealed);
  });
  if (certificate === null) await stored;
  // A renewed certificate; the next start tries again.
  else await stored.catch((err: unknown) => log.warn({ err }, 'renewed CA not stored in the shared database'));
  return ca;
}

async function restore(folder: string, certificate: string, key: () => string): Promise<void> {
  const [caFile, keyFile] = [join(folder, 'ca.pem'), join(folder, 'ca-key.pem')];
  if (!existsSync(caFile)) {
    await mkdir(folder, { recursive: true });
    await writeDurably(keyFile, key(), 0o600);
    await writeDurably(caFile, certificate, 0o644);
    return;
  }
  const present = readFileSync(caFile, 'utf8');
  if (present === certificate) return;
  if (!keyOf(present).equals(keyOf(certificate)))
    throw new OperatorError(
      `${caFile} is not the CA of the shared database: move ca.pem, ca-key.pem and the folder leaves in ${folder} aside`,
    );
  // It was renewed by another gateway.
  await writeDurably(caFile, certificate, 0o644);
}

function keyOf(pem: string): Buffer {
  return new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
}
