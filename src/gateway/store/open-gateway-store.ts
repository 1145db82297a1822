import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import { createKey, loadKey, parseKey, SecretsBox } from '../../lib/secrets-box.ts';
import { openStore, type Store } from './store.ts';

/** Where a gateway keeps its things. */
export interface StoreLocation {
  /** The program's data folder; the gateway's is `gateway/` below it. */
  dataDir: string;
  /** Key for private keys at rest, 32 bytes in base64; null: the one in the gateway's folder, made when missing. */
  encryptionKey: string | null;
}

/**
 * Opens the store of a gateway, running or not; makes what is missing.
 *
 * @throws {OperatorError} when folder, key or database cannot be used
 */
export function openGatewayStore({ dataDir, encryptionKey }: StoreLocation): Store {
  const folder = join(dataDir, 'gateway');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, 'gateway.db');
  const key =
    encryptionKey === null
      ? loadOrCreateKey(join(folder, 'encryption.key'), file)
      : parseKey(encryptionKey, 'the encryption key setting');
  return openStore(file, new SecretsBox(key));
}

/** The key is made before the database: one without a key has lost it, and a new key opens nothing of what is there. */
function loadOrCreateKey(file: string, database: string): Buffer {
  const key = loadKey(file);
  if (key) return key;
  if (existsSync(database)) {
    throw new OperatorError(
      `${file} is missing, the encryption key of the private keys in ${database}: restore it from a backup, or set ` +
        `GATEWAY_ENCRYPTION_KEY if that was used; if it is lost for good, make a new one (openssl rand -base64 32 > ` +
        `${file}) and upload certificates with their private keys anew`,
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
