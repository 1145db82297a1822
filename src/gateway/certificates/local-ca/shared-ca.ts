import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { OperatorError } from '../../../lib/errors.ts';
import { writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Store } from '../../store/store.ts';
import { type LocalCa, makeCa, openLocalCa } from './local-ca.ts';

/** Rows of `facts`. */
const CERTIFICATE = 'ca_certificate';
const KEY = 'ca_key';

/** Opens the one CA of all gateways of a shared database. @throws {OperatorError} as {@link openLocalCa}, for another too */
export async function openSharedCa(folder: string, { database, box }: Store, log: Log): Promise<LocalCa> {
  if (database.fact(CERTIFICATE) === null) {
    const { caPem, keyPem } = await firstCa(folder, log);
    await shareCa({ database, box }, caPem, keyPem);
  }
  const certificate = database.fact(CERTIFICATE) ?? '';
  await restore(folder, certificate, () => box.open(Buffer.from(database.fact(KEY) ?? '', 'base64'), KEY));
  const ca = await openLocalCa(folder, log);
  if (ca.caPem === certificate) return ca;
  // A renewed certificate; the next start tries again.
  await database
    .write(() => database.setFact(CERTIFICATE, ca.caPem))
    .catch((err: unknown) => log.warn({ err }, 'renewed CA not stored in the shared database'));
  return ca;
}

/** Makes a CA the one of all gateways of a database, which may have one already. */
export async function shareCa({ database, box }: Pick<Store, 'database' | 'box'>, caPem: string, keyPem: string) {
  const sealed = box.seal(keyPem, KEY).toString('base64');
  await database.write(() => {
    // Several gateways may start at once: one of them is the first.
    if (database.fact(CERTIFICATE) !== null) return;
    database.setFact(CERTIFICATE, caPem);
    database.setFact(KEY, sealed);
  });
}

/** The CA that the gateway had before it used a shared database, or a new one. */
async function firstCa(folder: string, log: Log): Promise<{ caPem: string; keyPem: string }> {
  if (!existsSync(join(folder, 'ca.pem'))) return makeCa();
  const { caPem } = await openLocalCa(folder, log);
  return { caPem, keyPem: readFileSync(join(folder, 'ca-key.pem'), 'utf8') };
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
