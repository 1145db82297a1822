import { X509Certificate } from 'node:crypto';
import { existsSync, linkSync, readFileSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import { nodeFiles, writeDurably } from '../../lib/files/durable-write.ts';
import { createLog } from '../../lib/log/log.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { createKey, loadKey, SecretsBox } from '../../lib/secrets-box.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { CA_CERTIFICATE, forgetNextCa } from '../certificates/local-ca/ca-rotation.ts';
import { restartedJob } from '../certificates/renewal-schedule.ts';
import type { ManagedDomainRow } from '../store/domains.ts';
import {
  encryptionKeysOf,
  expectGateway,
  keyFileOf,
  nextKeyFileOf,
  openForChanges,
} from '../store/open-gateway-store.ts';
import {
  ACME_ACCOUNT,
  changeKey,
  SEALED_FACTS,
  type Undecryptable,
  undecryptable,
  useOtherKey,
} from '../store/stored-secrets.ts';
import { type Store, withStore } from './command-store.ts';
import { gatewayWithout, SharedDatabase } from './shared-database.ts';

/** The encryption keys of a gateway, by ids that reveal nothing about them, and what they do not decrypt. */
interface KeyState {
  /** With which everything is encrypted. */
  readonly current: string;
  readonly others: readonly string[];
  readonly undecryptable: Undecryptable | null;
}

/** @throws {OperatorError} when a key is missing, or not the one of the shared database */
export function keyState(settings: GatewayServerSettings): Promise<KeyState> {
  return withStore(settings, (store) => ({ ...store.box.keyIds, undecryptable: undecryptable(store) }));
}

interface ChangedKey {
  readonly id: string;
  /** Values that were encrypted again; null: they were already. */
  readonly values: number | null;
  /** File with the key before, which older backups need; null: it is in the setting. */
  readonly kept: string | null;
}

/**
 * Changes the encryption key, while the gateway runs or not: everything is encrypted again in one transaction. It can be repeated
 * when it was interrupted.
 *
 * @throws {OperatorError} when a gateway does not know the next key yet, or the key now is not the one of the database
 */
export async function rotateKey(settings: GatewayServerSettings): Promise<ChangedKey> {
  const { databaseUrl, encryptionKey } = settings;
  if (databaseUrl === null) expectGateway(settings);
  if (encryptionKey === null) createNextKey(settings);
  return withStore(settings, async (store) => {
    const { box } = store;
    if (box.refusal !== null) throw new OperatorError(box.refusal);
    const keys = encryptionKeysOf(settings);
    const next = keys.at(-1) as Buffer;
    if (keys.length === 1) throw new OperatorError(FIRST_BOTH, 2);
    const { current: id } = new SecretsBox(next).keyIds;
    if (databaseUrl !== null) await requireKnown(settings, databaseUrl, id);
    const values = await changeKey(store, next);
    return { id, values, kept: encryptionKey === null ? await finishFiles(settings, box) : null };
  });
}

const FIRST_BOTH =
  'GATEWAY_ENCRYPTION_KEY has one key: set it to that one, a comma and a new one (openssl rand -base64 32) on each gateway, ' +
  'restart them one after another, then run this again';

/** One that an interrupted change, or another command at this moment, has made is used. */
function createNextKey(settings: GatewayServerSettings): void {
  try {
    createKey(nextKeyFileOf(settings));
  } catch (error) {
    if (!hasErrno(error, 'EEXIST')) throw error;
  }
}

/** Puts the next key in place of the one before, when nothing needs that one any more but older backups. */
async function finishFiles(settings: GatewayServerSettings, box: SecretsBox): Promise<string> {
  const [file, next] = [keyFileOf(settings), nextKeyFileOf(settings)];
  const account = join(dirname(file), 'acme-account.key');
  if (existsSync(account)) {
    const known = Buffer.from(readFileSync(account, 'latin1'), 'base64');
    if (box.opens(known, ACME_ACCOUNT)) {
      const again = box.seal(box.openBytes(known, ACME_ACCOUNT), ACME_ACCOUNT);
      await writeDurably(account, `${again.toString('base64')}\n`, 0o600);
    }
  }
  const { current: id } = new SecretsBox(loadKey(file) as Buffer).keyIds;
  const kept = `${file}.until-${new Date().toISOString().slice(0, 'YYYY-MM-DD'.length)}-${id}`;
  try {
    linkSync(file, kept);
  } catch (error) {
    // An interrupted change has kept this key today: the name has its id.
    if (!hasErrno(error, 'EEXIST')) throw error;
  }
  renameSync(next, file);
  await nodeFiles.syncFolder(dirname(file));
  return kept;
}

/** @throws {OperatorError} when another gateway of the shared database does not know a key, or does not say */
async function requireKnown(settings: GatewayServerSettings, url: string, id: string): Promise<void> {
  const address = await gatewayWithout(settings, url, ({ encryptionKeys = [] }) => encryptionKeys.includes(id));
  if (address === null) return;
  throw new OperatorError(
    `the gateway ${address} does not know the next key: set both on it, in the same order, and restart it`,
    2,
  );
}

/**
 * Has a stopped gateway go on without its encryption key, which is lost for good: with the one that is set, or a new one. What was
 * encrypted stays as it is. Automatic certificates are ordered again, with a new ACME account.
 *
 * @param folder only this process may use it
 * @returns what has to be uploaded, or set, again; null: the key is the right one, and nothing was changed
 * @throws {OperatorError} when other gateways use the shared database
 */
export async function replaceLostKey(settings: GatewayServerSettings): Promise<Undecryptable | null> {
  const { databaseUrl, encryptionKey, dataDir } = settings;
  if (databaseUrl === null) expectGateway(settings);
  else await requireNobody(databaseUrl);
  const keyFile = keyFileOf(settings);
  if (encryptionKey === null && loadKey(keyFile) === null) createKey(keyFile);
  const log = await createLog('silent', 'json');
  const { store, close } = await openForChanges(settings, { older: 'refuse', foreignKey: true, log });
  try {
    if (store.box.refusal === null) return null;
    const key = encryptionKeysOf(settings).at(-1) as Buffer;
    const caKey = store.database.fact(CA_CERTIFICATE) === null ? null : caKeyIn(join(dataDir, 'gateway'), store);
    await store.database.write(() => goOnWith(store, key, caKey), null);
    await setAside(join(dataDir, 'gateway', 'acme-account.key'));
    return undecryptable(store);
  } finally {
    await close();
  }
}

async function requireNobody(url: string): Promise<void> {
  const [gateway] = await SharedDatabase.use(url, (shared) => shared.gateways());
  if (gateway === undefined) return;
  const forget = ownCommand(`gateway nodes remove ${gateway.id}`);
  throw new OperatorError(
    `the gateway ${gateway.address} uses the shared database: stop it first; if it is lost: ${forget}`,
  );
}

function goOnWith(store: Store, key: Buffer, caKey: string | null): void {
  const { database, now, ownDomains, reservedDomains, tlsCertificates } = store;
  useOtherKey(database, key);
  database.forgetFact('acme_account_key');
  database.forgetFact('acme_account_next_key');
  forgetNextCa(database);
  const again = new SecretsBox(key);
  if (caKey !== null) database.setFact('ca_key', again.seal(caKey, SEALED_FACTS.ca_key).toString('base64'));
  const lost = new Set(tlsCertificates.sealedOtherwise());
  const ordered = <Each extends ManagedDomainRow>(row: Each): Each => {
    return { ...row, job: restartedJob(now(), row.job), due_at: now() };
  };
  for (const row of ownDomains.managed()) {
    if (lost.has(row.certificate_id ?? '')) ownDomains.update(ordered(row));
  }
  for (const row of reservedDomains.managed()) {
    if (lost.has(row.certificate_id ?? '')) reservedDomains.update(ordered(row));
  }
}

/** The key of the CA of a shared database, which each gateway has in its folder, too. @throws {OperatorError} when it has not */
function caKeyIn(folder: string, { database }: Store): string {
  const [certificate, key] = ['ca.pem', 'ca-key.pem'].map((name) => join(folder, name)) as [string, string];
  const isOurs = (pem: string) => {
    const publicKey = (each: string) => new X509Certificate(each).publicKey.export({ type: 'spki', format: 'der' });
    return publicKey(pem).equals(publicKey(database.fact(CA_CERTIFICATE) ?? pem));
  };
  if (existsSync(certificate) && existsSync(key) && isOurs(readFileSync(certificate, 'utf8')))
    return readFileSync(key, 'utf8');
  throw new OperatorError(
    `${key} is not there, or not that of the shared database: run this on a machine whose gateway has served with the others`,
  );
}

async function setAside(file: string): Promise<void> {
  if (!existsSync(file)) return;
  renameSync(file, `${file}.lost-${new Date().toISOString().slice(0, 10)}`);
  await nodeFiles.syncFolder(dirname(file));
}
