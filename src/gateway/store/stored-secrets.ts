import { OperatorError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { SecretsBox } from '../../lib/secrets-box.ts';
import type { Database } from './sql/database.ts';
import { DatabaseHeld } from './sql/database-problems.ts';
import type { Store } from './store.ts';

/** Row of `facts` that only the right encryption key opens. */
const KEY_CHECK = 'encryption_key';

/** What the encryption key does not decrypt, by the names that operators know it by. */
export interface Undecryptable {
  /** Whether the database was used with another key: nothing is encrypted until that is mended. */
  readonly isForeignKey: boolean;
  /** Names with a certificate, or the id of one that no name uses. */
  readonly certificates: readonly string[];
  readonly vaultValues: readonly string[];
  readonly destinations: readonly string[];
}

type Sealed = Pick<
  Store,
  'database' | 'box' | 'ownDomains' | 'reservedDomains' | 'tlsCertificates' | 'vaultSecrets' | 'eventDestinations'
>;

/** The names in one list, for messages. */
export function undecryptableCounts({ certificates, vaultValues, destinations }: Undecryptable): string {
  const counts: [number, string, string][] = [
    [certificates.length, 'private key', 'private keys'],
    [vaultValues.length, 'secret of vaults', 'secrets of vaults'],
    [destinations.length, 'destination of events', 'destinations of events'],
  ];
  return counts.flatMap(([count, one, more]) => (count === 0 ? [] : `${count} ${count === 1 ? one : more}`)).join(', ');
}

/** Looks at everything that is encrypted in the database. @returns null when the key decrypts all of it */
export function undecryptable(store: Sealed): Undecryptable | null {
  const { box, ownDomains, reservedDomains, tlsCertificates, vaultSecrets, eventDestinations } = store;
  const certificates = tlsCertificates.sealedOtherwise().flatMap((id) => {
    const names = [...ownDomains.using(id), ...reservedDomains.using(id)];
    return names.length === 0 ? [id] : names;
  });
  const found = {
    isForeignKey: box.refusal !== null,
    ...{
      certificates,
      vaultValues: vaultSecrets.sealedOtherwise(),
      destinations: eventDestinations.sealedOtherwise(),
    },
  };
  const isFine = !found.isForeignKey && undecryptableCounts(found) === '';
  return isFine ? null : found;
}

const FOREIGN =
  'the encryption key is not the one that the database was used with: restore that key, or, if it is lost for good, stop the ' +
  'gateway and run "device-agent gateway keys replace-lost"';

/**
 * From here on, the key that the database is used with encrypts, also when that is changed meanwhile; with none of the keys that
 * are known, nothing is encrypted: it would be lost. A database that does not say what it was used with was used with a key that
 * decrypts something in it.
 *
 * @param keys reads those that are known
 */
export function followKey(store: Sealed, keys: () => readonly Buffer[]): void {
  const { database, box } = store;
  let seen = database.fact(KEY_CHECK);
  if (seen === null ? !decryptsSomething(store) : !box.choose(checkOf(seen), KEY_CHECK, FOREIGN, keys())) {
    box.refuseToSeal(FOREIGN);
  }
  box.followWith(() => {
    const check = database.fact(KEY_CHECK);
    if (check === seen || check === null) return;
    box.choose(checkOf(check), KEY_CHECK, FOREIGN, keys());
    seen = check;
  });
}

/**
 * The key that a database is used with.
 *
 * @param keys one, or two while it is being changed
 * @throws {OperatorError} when it is another one
 */
export function keyInUse(database: Pick<Database, 'fact'>, keys: readonly Buffer[]): Buffer {
  const check = database.fact(KEY_CHECK);
  const used = check === null ? keys[0] : keys.find((key) => new SecretsBox(key).opens(checkOf(check), KEY_CHECK));
  if (used === undefined) throw new OperatorError(FOREIGN);
  return used;
}

const checkOf = (fact: string) => Buffer.from(fact, 'base64');

function decryptsSomething({ tlsCertificates, vaultSecrets, eventDestinations }: Sealed): boolean {
  const tables = [tlsCertificates, vaultSecrets, eventDestinations];
  const sealed = tables.reduce((sum, table) => sum + table.count('TRUE', []), 0);
  return sealed === 0 || tables.reduce((sum, table) => sum + table.sealedOtherwise().length, 0) < sealed;
}

/**
 * Logs what the encryption key does not decrypt, for example after a restore with another key, and notes in the database which key
 * it is used with.
 *
 * @returns reads what cannot be decrypted now; null: nothing
 */
export async function checkStoredSecrets(store: Sealed, log: Log): Promise<() => Undecryptable | null> {
  const { database } = store;
  if (database.unwritable === null) {
    await noteEncryptionKey(store).catch((err) => {
      // While an update is on trial, nothing is written: the next start does.
      if (!(err instanceof DatabaseHeld)) log.warn({ err }, 'encryption key not recorded in the database');
    });
  }
  const found = undecryptable(store);
  // What is encrypted from now on is encrypted with this key.
  if (found === null) return () => null;
  const { isForeignKey: foreign_key, certificates, vaultValues: values, destinations } = found;
  log.error(
    { foreign_key, certificates, values, destinations },
    'encryption key does not match what is encrypted in the database',
  );
  const read = database.untilCommit(() => undecryptable(store));
  return () => read('');
}

/** Notes in the database which key it is used with, unless it says so already. */
export async function noteEncryptionKey({ database, box }: Pick<Store, 'database' | 'box'>): Promise<void> {
  if (database.fact(KEY_CHECK) !== null || box.refusal !== null) return;
  const sealed = sealedCheck(box);
  // Another gateway may have begun at the same moment.
  await database.write(() => {
    if (database.fact(KEY_CHECK) === null) database.setFact(KEY_CHECK, sealed);
  });
}

function sealedCheck(box: SecretsBox): string {
  return box.seal(KEY_CHECK, KEY_CHECK).toString('base64');
}

function isKeyOf(database: Database, box: SecretsBox): boolean {
  const known = database.fact(KEY_CHECK);
  return known === null || box.opens(checkOf(known), KEY_CHECK);
}

/** @throws {OperatorError} unless it is the encryption key that the shared database is used with, as far as it says */
export function requireSameKey(database: Database, box: SecretsBox): void {
  if (isKeyOf(database, box)) return;
  const message = 'GATEWAY_ENCRYPTION_KEY is not the key that the shared database is used with: set that one';
  throw new OperatorError(message, 2);
}

/** Values that are encrypted, by their tables; each is bound to the id of its row. */
const SEALED_COLUMNS = [
  ['tls_certificates', 'private_key'],
  ['vault_secrets', 'value'],
  ['event_destinations', 'target'],
  ['audit_log', 'policies'],
] as const;
/** Facts that are encrypted, and bound to what. */
export const SEALED_FACTS = {
  acme_account_key: 'acme-account',
  acme_account_next_key: 'acme-account-next',
  ca_key: 'ca_key',
  ca_next_key: 'ca_key',
};
export const ACME_ACCOUNT = SEALED_FACTS.acme_account_key;
/** Digests with a key that follows from the encryption key: without it, they say nothing. */
const KEYED = ['bound_policies', 'familiar_networks'];
const PAGE = 500;

/**
 * Changes the encryption key in one transaction: encrypts everything again, as far as a known key decrypts it.
 *
 * @param next one that the box knows as well, as do all programs that use the database
 * @returns how many values were encrypted again; null: it is the key already
 */
export function changeKey({ database, box }: Pick<Store, 'database' | 'box'>, next: Buffer): Promise<number | null> {
  const change = () => {
    if (isKeyOf(database, new SecretsBox(next))) return null;
    useOtherKey(database, next);
    return sealAgain(database, box);
  };
  return database.write(change, null);
}

function sealAgain(database: Database, box: SecretsBox): number {
  let count = 0;
  for (const [name, owner] of Object.entries(SEALED_FACTS)) {
    const known = database.fact(name);
    if (known === null || !box.opens(Buffer.from(known, 'base64'), owner)) continue;
    database.setFact(name, box.seal(box.open(Buffer.from(known, 'base64'), owner), owner).toString('base64'));
    count += 1;
  }
  for (const [table, column] of SEALED_COLUMNS) {
    const page = `SELECT id, ${column} AS sealed FROM ${table} WHERE id > ? AND ${column} IS NOT NULL ORDER BY id LIMIT ${PAGE}`;
    let rows: { id: string; sealed: ArrayBuffer }[];
    for (let after = ''; ; after = rows.at(-1)?.id ?? '') {
      rows = database.all(page, [after]);
      for (const { id, sealed } of rows) {
        const known = Buffer.from(sealed);
        if (!box.opens(known, id)) continue;
        const again = box.seal(box.openBytes(known, id), id);
        database.run(`UPDATE ${table} SET ${column} = ? WHERE id = ?`, [again, id]);
        count += 1;
      }
      if (rows.length < PAGE) break;
    }
  }
  return count;
}

/** Goes on with another key. What the one before encrypted stays as it is. Only inside a transaction. */
export function useOtherKey(database: Database, key: Buffer): void {
  database.setFact(KEY_CHECK, sealedCheck(new SecretsBox(key)));
  for (const table of KEYED) database.run(`DELETE FROM ${table}`);
}
