import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import { caIdOf } from '../../../lib/tls/pinned-chain.ts';
import type { Store } from '../../store/store.ts';
import { CA_CERTIFICATE as CERTIFICATE, endedCas, CA_KEY as KEY, noteCertificates } from './ca-rotation.ts';
import { type LocalCa, makeCa, openLocalCa } from './local-ca.ts';

/**
 * Opens the present CA of a gateway: that of the database, which all gateways of a shared one have, and one whose CA was changed
 * before. Else, it is in the folder alone.
 *
 * @throws {OperatorError} as {@link openLocalCa}; also when the folder has another CA than the database
 */
export async function openPresentCa(folder: string, store: CaStore, log: Log): Promise<LocalCa> {
  const { database } = store;
  await noteCertificates(store, [...certificateFile(folder)]).catch(() => {}); // Before it is renewed; the next start tries again.
  const isHere = !database.isReplica && database.fact(CERTIFICATE) === null;
  const ca = isHere ? await openLocalCa(folder, log) : await openSharedCa(folder, store, log);
  await noteCertificates(store, [ca.caPem]).catch((reason: unknown) => {
    log.warn({ reason: messageOf(reason) }, 'certificate authority not recorded in the database');
  });
  return ca;
}

/** To write files that somebody else is writing. */
const MOST_ATTEMPTS = 5;

type CaStore = Pick<Store, 'database' | 'box'>;

function* certificateFile(folder: string): Iterable<string> {
  const file = join(folder, 'ca.pem');
  if (existsSync(file)) yield readFileSync(file, 'utf8');
}

/** Opens the one CA of all gateways of a shared database. @throws {OperatorError} as {@link openLocalCa}, for another too */
async function openSharedCa(folder: string, { database, box }: CaStore, log: Log): Promise<LocalCa> {
  if (database.fact(CERTIFICATE) === null) {
    const { caPem, keyPem } = await firstCa(folder, log);
    await shareCa({ database, box }, caPem, keyPem);
  }
  const certificate = database.fact(CERTIFICATE) ?? '';
  const replacement = {
    key: () => box.open(Buffer.from(database.fact(KEY) ?? '', 'base64'), KEY),
    ended: endedCas(database),
  };
  for (let attempt = 1; ; attempt += 1) {
    try {
      await restore(folder, certificate, replacement);
      break;
    } catch (error) {
      // The gateway and a command beside it write the same files at the same time.
      if (!hasErrno(error, 'ENOENT') || attempt === MOST_ATTEMPTS) throw error;
    }
  }
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

async function restore(
  folder: string,
  certificate: string,
  { key, ended }: { key: () => string; ended: readonly string[] },
): Promise<void> {
  const [caFile, keyFile] = [join(folder, 'ca.pem'), join(folder, 'ca-key.pem')];
  const present = existsSync(caFile) ? readFileSync(caFile, 'utf8') : null;
  if (present === certificate) return;
  // One that has ended was replaced while this gateway did not run, or was killed at it.
  if (present === null || ended.includes(caIdOf(new X509Certificate(present)))) {
    await mkdir(folder, { recursive: true });
    await writeDurably(keyFile, key(), 0o600);
    await writeDurably(caFile, certificate, 0o644);
    return;
  }
  if (!keyOf(present).equals(keyOf(certificate)))
    throw new OperatorError(
      `${caFile} is not the CA of the database: move ca.pem, ca-key.pem and the folder leaves in ${folder} aside`,
    );
  // It was renewed by another gateway.
  await writeDurably(caFile, certificate, 0o644);
}

function keyOf(pem: string): Buffer {
  return new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
}
