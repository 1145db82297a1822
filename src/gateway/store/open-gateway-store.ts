import { createHash, X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { explainUnreadable } from '../../lib/files/durable-write.ts';
import type { Log } from '../../lib/log/log.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { createKey, loadKey, parseKeys, SecretsBox } from '../../lib/secrets-box.ts';
import { noteCopyDamaged, noteOrigin, readOrigin, setCopyAside, setNotedCopyAside } from './shared/copy-files.ts';
import type { JoinSharedOptions } from './shared/join-shared.ts';
import type { SharedWrites } from './shared/shared-writes.ts';
import type { Database } from './sql/database.ts';
import { DatabaseDamaged, type DatabaseUnwritable, isDamage } from './sql/database-problems.ts';
import { openDatabase, openStore, type Store, storeOn } from './store.ts';
import { followKey, noteEncryptionKey, requireSameKey } from './stored-secrets.ts';
import { holdDuringTrial } from './update-trial.ts';

export interface StoreLocation {
  /** The program's data folder; the gateway's is `gateway/` below it. */
  dataDir: string;
  /** Key that encrypts private keys at rest, 32 bytes in base64; null: the key file in the gateway's folder. */
  encryptionKey: string | null;
  /** Of the shared database, of which the one in the folder is a copy; null: it is a database of its own. */
  databaseUrl?: string | null;
  /** Days for which the audit log is kept; left out: 90. */
  auditLogDays?: number;
}

/** Opens the store of a gateway, running or not, and creates what is missing. @throws {OperatorError} when that fails */
export function openGatewayStore(
  { dataDir, encryptionKey }: StoreLocation,
  older: 'upgrade' | 'refuse' = 'upgrade',
): Store {
  const { file, box } = openFolder({ dataDir, encryptionKey });
  const store = openStore(file, box, Date.now, older);
  followKey(store, () => encryptionKeysOf({ dataDir, encryptionKey }));
  return store;
}

interface ChangeOptions {
  older: 'upgrade' | 'refuse';
  /** Whether everything is moved into or out of the shared database; omitted: neither. */
  moves?: 'in' | 'out';
  /**
   * For the gateway itself, which alone may replace a damaged copy of the shared database. Called when the copy turns out to be
   * damaged later, or cannot be written any more: the next start makes it again, or keeps it in memory.
   */
  onCopyUnusable?: (reason: string) => void;
  /** Whether another key than that of the shared database is taken, to replace a lost one. */
  foreignKey?: boolean;
  log: Log;
}

interface OpenedForChanges {
  store: Store;
  shared: SharedWrites | null;
  close: () => Promise<void>;
}

/**
 * Like {@link openGatewayStore}, for changes that go to its shared database if it has one. @throws {OperatorError} also for
 * that one
 * @returns also the queue of these changes, which does not follow those of others yet; null without a shared database
 */
export async function openForChanges(location: StoreLocation, options: ChangeOptions): Promise<OpenedForChanges> {
  const { onCopyUnusable, log } = options;
  const renewsCopy = onCopyUnusable !== undefined && (location.databaseUrl ?? null) !== null;
  if (renewsCopy && readOrigin(folderOf(location)) !== null) setNotedCopyAside(databaseOf(location), log);
  try {
    return await openOnce(location, options);
  } catch (error) {
    const reason = explainDamage(error, location);
    if (!(reason instanceof CopyDamaged) || !renewsCopy) throw reason;
    setCopyAside(databaseOf(location), reason.problem, log);
  }
  return await openOnce(location, options);
}

async function openOnce(
  location: StoreLocation,
  { older, moves, onCopyUnusable, foreignKey = false, log }: ChangeOptions,
): Promise<OpenedForChanges> {
  const { file, box } = openFolder(location);
  const url = location.databaseUrl ?? null;
  const writtenAt = writtenLast(file);
  const database = openDatabase(file, older);
  let shared: SharedWrites | null = null;
  try {
    const origin = moves === undefined ? readOrigin(folderOf(location)) : null;
    const onUnwritable = onCopyUnusable && ((error: DatabaseUnwritable) => onCopyUnusable(error.message));
    shared = await shareDatabase(database, url, { moves: moves ?? null, origin, onUnwritable, writtenAt, log });
    if (onCopyUnusable || shared === null) await noteOrigin(folderOf(location), shared?.origin ?? null, log);
    if (onCopyUnusable && shared !== null) {
      database.onDamage((problem) => {
        noteCopyDamaged(file, problem, log);
        onCopyUnusable(new CopyDamaged(file, problem, null).message);
      });
    }
    if (shared === null) holdDuringTrial(database, folderOf(location));
    const store = storeOn(database, box);
    if (location.auditLogDays !== undefined) store.auditLog.keepFor(location.auditLogDays);
    if (shared !== null) await noteEncryptionKey(store);
    followKey(store, () => encryptionKeysOf(location));
    if (shared !== null && !foreignKey) requireSameKey(database, box);
    return { store, shared, close: () => closed(database, shared) };
  } catch (error) {
    await closed(database, shared);
    throw error;
  }
}

async function shareDatabase(
  database: Database,
  url: string | null,
  options: Omit<JoinSharedOptions, 'url'>,
): Promise<SharedWrites | null> {
  if (url !== null) {
    const { joinShared } = await import('./shared/join-shared.ts');
    const shared = await joinShared(database.replicaParts(), { url, ...options });
    database.writeTo(shared);
    return shared;
  }
  if (database.isReplica)
    throw new OperatorError(
      `this gateway used a shared database: set GATEWAY_DATABASE_URL, or run "${ownCommand('gateway migrate --to sqlite')}"`,
      2,
    );
  return null;
}

/** The gateway's database is damaged, but the shared database has everything. */
class CopyDamaged extends OperatorError {
  constructor(
    file: string,
    readonly problem: string,
    cause: unknown,
  ) {
    const advice = 'it is a copy of the shared database; restart the gateway, which sets it aside and makes it again';
    super(`the database ${file} is damaged (${problem}): ${advice}`, 1, { cause });
  }
}

/** With a shared database, restoring a backup would replace what all its gateways have. */
function explainDamage(error: unknown, location: StoreLocation): unknown {
  if (!isDamage(error)) return error;
  const file = databaseOf(location);
  const problem = error instanceof DatabaseDamaged ? error.problem : messageOf(error);
  if ((location.databaseUrl ?? null) === null) return new DatabaseDamaged(file, problem, { cause: error });
  if (readOrigin(folderOf(location)) !== null) return new CopyDamaged(file, problem, error);
  return new OperatorError(
    `the database ${file} is damaged (${problem}), and may not be a copy of the shared database: if it is one, stop the ` +
      `gateway, move ${file}* to another folder and start it; the copy is made again`,
    1,
    { cause: error },
  );
}

async function closed(database: Database, shared: SharedWrites | null): Promise<void> {
  await shared?.stop();
  database.close();
}

function openFolder(location: StoreLocation): { file: string; box: SecretsBox } {
  mkdirSync(join(location.dataDir, 'gateway'), { recursive: true, mode: 0o700 });
  return { file: databaseOf(location), box: new SecretsBox(encryptionKeysOf(location)) };
}

function folderOf({ dataDir }: StoreLocation): string {
  return join(dataDir, 'gateway');
}

function databaseOf(location: StoreLocation): string {
  return join(folderOf(location), 'gateway.db');
}

/** Where a gateway has its encryption key, unless that is a setting. */
export function keyFileOf({ dataDir }: Pick<StoreLocation, 'dataDir'>): string {
  return join(dataDir, 'gateway', 'encryption.key');
}

/** Where the next key is while a gateway's encryption key is being changed. */
export function nextKeyFileOf(location: Pick<StoreLocation, 'dataDir'>): string {
  return `${keyFileOf(location)}.next`;
}

/**
 * The encryption key of a gateway, or two while it is being changed: the database says which one is in use. Creates the key of a
 * new gateway.
 *
 * @throws {OperatorError} when it is lost or damaged
 */
export function encryptionKeysOf(location: StoreLocation): Buffer[] {
  const { encryptionKey } = location;
  if (encryptionKey !== null) return parseKeys(encryptionKey, 'the encryption key setting');
  // The next key first: a rename puts it in place of the other.
  const next = loadKey(nextKeyFileOf(location));
  const key = loadOrCreateKey(keyFileOf(location), databaseOf(location));
  return next === null || next.equals(key) ? [key] : [key, next];
}

/** Opens a gateway's database, running or not, in any version and without its key. @throws {OperatorError} when that fails */
export function openGatewayDatabase(location: StoreLocation): Database {
  expectGateway(location);
  try {
    return openDatabase(databaseOf(location), 'keep');
  } catch (error) {
    throw explainDamage(error, location);
  }
}

/** @throws {OperatorError} unless a standalone gateway has been started in this folder and its files can be read */
export function expectGateway({ dataDir }: StoreLocation): void {
  const folder = join(dataDir, 'gateway');
  // A log without its database is damage, which opening reports.
  if (['gateway.db', 'gateway.db-wal'].some((name) => isThere(join(folder, name)))) return;
  throw new OperatorError(
    `no gateway in ${dataDir}: run this in the folder of a gateway that was started before, or set DATA_DIR to its data`,
    2,
  );
}

/** When a database was written, in Unix milliseconds; 0: there is none. */
function writtenLast(file: string): number {
  return Math.max(...[file, `${file}-wal`].map((each) => statSync(each, { throwIfNoEntry: false })?.mtimeMs ?? 0));
}

function isThere(file: string): boolean {
  try {
    return statSync(file, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    throw explainUnreadable(file, error);
  }
}

/** The key is created before the database. A database without its key has lost it; a new key could not decrypt it. */
function loadOrCreateKey(file: string, database: string): Buffer {
  const key = loadKey(file);
  if (key) return key;
  if (existsSync(database)) {
    throw new OperatorError(
      `${file} is missing, the encryption key of the private keys in ${database}: restore it from a backup, or set ` +
        `GATEWAY_ENCRYPTION_KEY if that was used; if it is lost for good: ${ownCommand('gateway keys replace-lost')}`,
    );
  }
  try {
    return createKey(file);
  } catch (error) {
    const other = hasErrno(error, 'EEXIST') ? loadKey(file) : null;
    if (other) return other; // another process was faster
    throw error;
  }
}

/** Row of `facts` that identifies the CA key last used with the database. */
export const USED_WITH_CA = 'local_ca';

/**
 * Logs when the CA beside the database is not the one it was used with, for example after a restore without it. The gateway
 * starts, but agents and clients no longer trust it.
 */
export async function checkAuthority(
  store: Store,
  { caPem, caFile }: { readonly caPem: string; readonly caFile: string },
  log: Log,
): Promise<void> {
  const { database } = store;
  const known = database.fact(USED_WITH_CA);
  const present = keyFingerprint(caPem);
  if (known === present) return;
  if (known !== null) {
    log.error({ ca: caFile }, 'certificate authority replaced: clients that trust the old one cannot connect');
  }
  if (database.unwritable !== null) return;
  try {
    await database.write(() => database.setFact(USED_WITH_CA, present));
  } catch (err) {
    log.warn({ err }, 'certificate authority not recorded in the database');
  }
}

/** Fingerprint of the key: a renewed certificate with the same key is trusted like the one before. */
export function keyFingerprint(caPem: string): string {
  const key = new X509Certificate(caPem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(key).digest('hex');
}
