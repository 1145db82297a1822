import { join } from 'node:path';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { createLog } from '../../lib/log/log.ts';
import { loadKey, SecretsBox } from '../../lib/secrets-box.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import {
  type Backup,
  type BackupSource,
  isKeyOf,
  type Manifest,
  MIN_PASSPHRASE,
  openKey,
  PARTS,
  readBackup,
  writeBackup,
} from '../backup/backup-file.ts';
import { restoreBackup } from '../backup/restore-backup.ts';
import { noteBackup } from '../store/last-backup.ts';
import {
  encryptionKeysOf,
  expectGateway,
  keyFileOf,
  openForChanges,
  openGatewayDatabase,
} from '../store/open-gateway-store.ts';
import { keyInUse } from '../store/stored-secrets.ts';

export { keyState, replaceLostKey, rotateKey } from './encryption-keys.ts';

/** What a backup is made with besides the gateway's data. */
interface NewBackup {
  /** The settings as lines of `.env`, without the encryption key. */
  settings: string;
  /** Asked for last, when everything else is there; null: the backup gets no encryption key. */
  passphrase: (() => Promise<string>) | null;
}

/**
 * Writes everything that a gateway needs to one file, while it runs or not.
 *
 * @returns why its dashboard does not know of the backup; null when it does
 * @throws {OperatorError} when there is no gateway, or the file exists or cannot be written
 */
export async function backUp(
  gateway: GatewayServerSettings,
  file: string,
  { settings, passphrase }: NewBackup,
): Promise<string | null> {
  const { dataDir, domain, databaseUrl } = gateway;
  if (databaseUrl === null) expectGateway(gateway);
  // A missing one is said before somebody types a passphrase; meanwhile, it may be changed.
  encryptionKeysOf(gateway);
  const secret = await passphrase?.();
  const { database, close } = await openForBackup(gateway);
  try {
    const key = keyInUse(database, encryptionKeysOf(gateway));
    const withKey = secret !== undefined && { key: key.toString('base64'), passphrase: secret };
    const source = { folder: join(dataDir, 'gateway'), domain, settings, box: new SecretsBox(key) };
    await writeBackup(file, { ...source, database, ...(withKey && { withKey }) });
    return await noteBackup(database).then(() => null, messageOf);
  } finally {
    await close();
  }
}

/** A database of its own can be of an older version; the copy of a shared one is brought up to date first. */
async function openForBackup(
  gateway: GatewayServerSettings,
): Promise<{ database: BackupSource['database']; close: () => Promise<void> }> {
  if (gateway.databaseUrl !== null) {
    const { store, close } = await openForChanges(gateway, { older: 'refuse', log: await createLog('silent', 'json') });
    return { database: store.database, close };
  }
  const database = openGatewayDatabase(gateway);
  return { database, close: async () => database.close() };
}

/** @throws {OperatorError} exit code 2 for a passphrase that is too short for an encryption key */
export function requireLongPassphrase(passphrase: string): void {
  if (passphrase.length >= MIN_PASSPHRASE) return;
  throw new OperatorError(`the passphrase is too short: use at least ${MIN_PASSPHRASE} characters`, 2);
}

/** A backup that is read, and checked as far as that needs no key. */
export class ReadBackup {
  readonly file: string;
  readonly manifest: Manifest;
  /** Whether it has the encryption key. */
  readonly hasKey: boolean;
  readonly #backup: Backup;

  /** @throws {OperatorError} when it is damaged, or made by a newer version of this program */
  constructor(file: string) {
    this.#backup = readBackup(file);
    this.file = file;
    this.manifest = this.#backup.manifest;
    this.hasKey = this.#backup.parts.has(PARTS.key);
  }

  /** Whether an encryption key is the one of the backup. @throws {OperatorError} when it is, and the backup was changed since */
  isOfKey(key: Buffer): boolean {
    return isKeyOf(this.#backup, key);
  }

  /** The encryption key in it; null: the passphrase is another one. */
  openKey(passphrase: string): Promise<Buffer | null> {
    return openKey(this.#backup, passphrase);
  }

  /** The settings in it, as lines of `.env`; null: it has none. */
  settings(key: Buffer): string | null {
    const sealed = this.#backup.parts.get(PARTS.settings);
    return sealed === undefined ? null : new SecretsBox(key).open(sealed, PARTS.settings);
  }

  /**
   * Puts it in place of what a stopped gateway has, whose folder nobody else uses.
   *
   * @param key of the backup
   * @param settings those here, as lines of `.env`
   * @returns the folder with what was replaced; null: there was nothing
   * @throws {OperatorError} when its database is unsound, or a gateway serves the shared database
   */
  restore(gateway: GatewayServerSettings, key: Buffer, settings: string): Promise<string | null> {
    const { dataDir, databaseUrl, encryptionKey, domain } = gateway;
    const isKeySet = encryptionKey !== null;
    return restoreBackup(this.#backup, {
      folder: join(dataDir, 'gateway'),
      ...{ key, isKeySet, databaseUrl, domain, settings },
    });
  }
}

/** The file where a gateway has its encryption key unless that is a setting, and the key; null: there is none yet. */
export function ownKey(gateway: GatewayServerSettings): { keyFile: string; key: Buffer | null } {
  const keyFile = keyFileOf(gateway);
  return { keyFile, key: loadKey(keyFile) };
}
