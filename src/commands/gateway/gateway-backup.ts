import { chownSync, existsSync, readFileSync, statSync } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { parse as parseDotenv } from 'dotenv';
import { backUp, ownKey, ReadBackup, requireLongPassphrase } from '../../gateway/offline/backups.ts';
import { OperatorError } from '../../lib/errors.ts';
import { isDataFolderHeld, openDataFolder } from '../../lib/files/data-folder.ts';
import { explainUnreadable } from '../../lib/files/durable-write.ts';
import { parseKey, parseKeys } from '../../lib/secrets-box.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, prompt, table } from '../output.ts';
import { becomeGatewayOwner } from '../settings-place.ts';
import { addSettings, settingsForBackup } from './settings-text.ts';

export interface BackupOptions {
  withKey?: boolean;
  passphraseFile?: string;
  json?: boolean;
}

export interface RestoreOptions {
  keyFile?: string;
  passphraseFile?: string;
  json?: boolean;
}

/** Of a machine; those of a backup are never written to another one. */
const OF_PLACE = ['GATEWAY_ENCRYPTION_KEY', 'GATEWAY_DATABASE_URL', 'GATEWAY_NODE_ADDRESS', 'GATEWAY_BACKUPS'];

/** Writes everything that a gateway needs to one file, while it runs or not. @throws {OperatorError} when that fails */
export async function backUpGateway(
  settings: GatewayServerSettings,
  file: string,
  { withKey = false, passphraseFile, json }: BackupOptions,
): Promise<void> {
  if (!withKey && passphraseFile !== undefined) throw new OperatorError('--passphrase-file: needs --with-key', 2);
  const unnoted = await backUp(settings, file, {
    settings: settingsForBackup(settings),
    passphrase: withKey ? () => newPassphrase(passphraseFile) : null,
  });
  if (unnoted !== null) note(`the dashboard does not know of it: ${unnoted}`);
  if (json) return print(jsonText({ file, with_key: withKey }));
  const keep = 'keep the encryption key in another place: without it, the backup cannot be restored';
  note(`${file}: backup written; ${withKey ? 'keep the passphrase in another place' : keep}`);
}

/** Prints what a backup has. @throws {OperatorError} when it is damaged, or made by a newer version of this program */
export function listBackup(file: string, { json }: Pick<BackupOptions, 'json'>): void {
  const { manifest, hasKey } = new ReadBackup(file);
  if (json) return void print(jsonText({ ...manifest, with_key: hasKey }));
  const { made_at, version, domain, shared, files } = manifest;
  const kind = shared ? 'a shared database' : 'a database of its own';
  const key = hasKey ? 'with the encryption key' : 'without the encryption key';
  note(`Made at ${made_at} by version ${version}; domain ${domain}, ${kind}, ${key}.`);
  print(
    table(
      ['NAME', 'BYTES', 'SHA-256'],
      files.map(({ name, size, sha256 }) => [name, String(size), sha256]),
    ),
  );
}

/**
 * Puts a backup in place of what a stopped gateway has.
 *
 * @throws {OperatorError} before it changes anything, when the backup is damaged, newer, or of another key, or a gateway runs
 */
export async function restoreGateway(
  settings: GatewayServerSettings,
  file: string,
  options: RestoreOptions,
): Promise<void> {
  const { dataDir, databaseUrl } = settings;
  const backup = new ReadBackup(file);
  const key = await keyOf(backup, settings, options);
  if (await isDataFolderHeld(dataDir)) throw new OperatorError(`a gateway or an agent uses ${dataDir}: stop it first`);
  await restoreSettings(backup, key, settings);
  if (existsSync(dataDir)) await becomeGatewayOwner(settings);
  const folder = await openDataFolder(dataDir);
  let replaced: string | null;
  try {
    if (folder.unwritable !== null) throw new OperatorError(folder.unwritable);
    replaced = await backup.restore(settings, key, settingsForBackup(settings));
  } finally {
    await folder.release();
  }
  if (options.json) return print(jsonText({ made_at: backup.manifest.made_at, replaced }));
  if (replaced !== null) note(`What it replaces is in ${replaced}`);
  const place = databaseUrl === null ? dataDir : 'the shared database';
  note(`The backup of ${backup.manifest.made_at} is restored into ${place}. Start the gateway.`);
  if (databaseUrl === null && backup.manifest.shared)
    note('It was made with a shared database: to restore it there, set GATEWAY_DATABASE_URL, and run this again.');
}

async function keyOf(
  backup: ReadBackup,
  settings: GatewayServerSettings,
  { keyFile, passphraseFile }: RestoreOptions,
): Promise<Buffer> {
  const { encryptionKey } = settings;
  if (encryptionKey !== null) {
    const set = parseKeys(encryptionKey, 'GATEWAY_ENCRYPTION_KEY').find((key) => backup.isOfKey(key));
    if (set) return set;
    throw new OperatorError(
      `GATEWAY_ENCRYPTION_KEY is not the key of ${backup.file}: set that one, or remove the setting and use --key-file`,
      2,
    );
  }
  if (passphraseFile === undefined) {
    if (keyFile !== undefined) {
      const known = parseKey(lineOf(keyFile), keyFile);
      if (backup.isOfKey(known)) return known;
      throw wrongKey(backup, keyFile);
    }
    const own = ownKey(settings);
    if (own.key !== null && backup.isOfKey(own.key)) return own.key;
    if (!backup.hasKey) throw own.key === null ? noKey(backup, own.keyFile) : wrongKey(backup, own.keyFile);
  } else if (!backup.hasKey) {
    throw new OperatorError(`${backup.file} has no encryption key: use --key-file instead of a passphrase`, 2);
  }
  const key = await backup.openKey(await passphraseOf(passphraseFile, 'Passphrase of the backup: '));
  if (key !== null && backup.isOfKey(key)) return key;
  throw new OperatorError(`cannot decrypt the encryption key in ${backup.file}: wrong passphrase; try again`, 2);
}

function noKey({ file }: ReadBackup, keyFile: string): OperatorError {
  return new OperatorError(
    `${file} is without its encryption key, and ${keyFile} does not exist: name a file with the key by --key-file, ` +
      'or set GATEWAY_ENCRYPTION_KEY',
    2,
  );
}

function wrongKey({ file }: ReadBackup, origin: string): OperatorError {
  return new OperatorError(
    `the encryption key in ${origin} is not the one of ${file}: name a file with the right key by --key-file`,
    2,
  );
}

/** A place without settings gets those of the backup. */
async function restoreSettings(backup: ReadBackup, key: Buffer, { texts, settingsFile }: GatewayServerSettings) {
  const saved = backup.settings(key);
  if (saved === null) return;
  const kept = parseDotenv(saved);
  const different = Object.entries(kept).filter(([name, value]) => texts[name] !== value);
  const wanted = different.filter(([name]) => !OF_PLACE.includes(name)).map(([name, value]) => ({ name, value }));
  const isNew = texts.GATEWAY_DOMAIN === undefined && texts.GATEWAY_IP === undefined;
  if (isNew && wanted.length > 0) {
    // The service reads its settings by its group.
    const present = statSync(settingsFile, { throwIfNoEntry: false });
    await addSettings(wanted, settingsFile, present === undefined ? 0o600 : present.mode & 0o640);
    if (present !== undefined && process.geteuid?.() === 0) chownSync(settingsFile, present.uid, present.gid);
    note(`Settings written to ${settingsFile}: ${wanted.map(({ name }) => name).join(', ')}`);
  }
  const left = different.map(([name]) => name).filter((name) => !isNew || OF_PLACE.includes(name));
  if (left.length > 0) note(`Settings that are not as in the backup, and stay as they are: ${left.join(', ')}`);
}

async function newPassphrase(file: string | undefined): Promise<string> {
  const passphrase = await passphraseOf(file, 'Passphrase for the encryption key: ');
  requireLongPassphrase(passphrase);
  if (file === undefined && (await askSecret('The same again: ')) !== passphrase)
    throw new OperatorError('the two passphrases differ: try again', 2);
  return passphrase;
}

/** From a file, or typed at the terminal. */
async function passphraseOf(file: string | undefined, question: string): Promise<string> {
  return file === undefined ? askSecret(question) : lineOf(file);
}

function lineOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    throw explainUnreadable(file, error);
  }
}

/** Asks for a line of input that the terminal does not show. @throws {OperatorError} without a terminal */
async function askSecret(question: string): Promise<string> {
  if (!process.stdin.isTTY) throw new OperatorError('no terminal to ask for the passphrase: use --passphrase-file', 2);
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  // After the terminal has stopped to show what is typed.
  prompt(question);
  const cancelled = new AbortController();
  terminal.once('close', () => cancelled.abort());
  try {
    return await terminal.question('', { signal: cancelled.signal });
  } catch (cause) {
    throw new OperatorError('cancelled: nothing was changed', 130, { cause });
  } finally {
    terminal.close();
    prompt('\n');
  }
}
