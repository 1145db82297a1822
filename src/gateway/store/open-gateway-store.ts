import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadOrCreateKey, parseKey, SecretsBox } from '../../lib/secrets-box.ts';
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
  const key =
    encryptionKey === null
      ? loadOrCreateKey(join(folder, 'encryption.key'))
      : parseKey(encryptionKey, 'the encryption key setting');
  return openStore(join(folder, 'gateway.db'), new SecretsBox(key));
}
