import { createHash, randomBytes, scrypt } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { createGzip, gunzipSync } from 'node:zlib';
import { z } from 'zod';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { explainUnreadable, nodeFiles, withDiskAdvice } from '../../lib/files/durable-write.ts';
import { readTar, TAR_END, tarHeader, tarPadding } from '../../lib/files/tar.ts';
import { SecretsBox } from '../../lib/secrets-box.ts';
import { VERSION } from '../../packaged.ts';
import type { Database } from '../store/sql/database.ts';
import { SCHEMA_VERSION } from '../store/sql/migrations.ts';

/** Grows when an older program could not restore a file. */
const FORMAT = 1;
const MANIFEST = 'backup.json';
/** What {@link Manifest.seal} belongs to. */
const SEAL = 'backup';

/** The parts of a backup. Those that end in `.sealed` are encrypted, the key with the passphrase, others with that key. */
export const PARTS = {
  database: 'gateway.db',
  ca: 'ca.pem',
  caKey: 'ca-key.pem.sealed',
  acmeAccount: 'acme-account.key',
  settings: 'settings.env.sealed',
  key: 'encryption.key.sealed',
} as const;

/** Parts that are in the gateway's folder under the same name. The ACME account's key is encrypted there, too. */
const PLAIN = [PARTS.ca, PARTS.acmeAccount] as const;

const Digests = z.object({
  format: z.number(),
  made_at: z.string(),
  /** Of the program. */
  version: z.string(),
  /** Of the database. */
  schema: z.number(),
  domain: z.string(),
  /** Whether the gateway had a shared database. */
  shared: z.boolean(),
  files: z.array(z.object({ name: z.string(), size: z.number(), sha256: z.string() })),
});
const Manifest = Digests.extend({
  /** The digest of all else, encrypted: only the right key opens it. */
  seal: z.string(),
});
export type Manifest = z.infer<typeof Manifest>;

export interface BackupSource {
  database: Database;
  /** The gateway's folder, with its CA. */
  folder: string;
  domain: string;
  /** The settings as lines of `.env`, without the encryption key. */
  settings: string;
  /** Of the encryption key. */
  box: SecretsBox;
  /** The encryption key in base64, and the passphrase that it is encrypted with; left out: the backup has no key. */
  withKey?: { key: string; passphrase: string };
}

/**
 * Writes a backup, while the gateway runs or not: a gzipped tar file with mode 0600 that gets its name only when it is complete.
 *
 * @throws {OperatorError} when the file exists, or cannot be written
 */
export async function writeBackup(file: string, source: BackupSource): Promise<void> {
  if (existsSync(file)) throw alreadyThere(file);
  let folder: string | null = null;
  try {
    folder = mkdtempSync(join(dirname(file), TEMPORARY));
    const archive = join(folder, 'archive');
    await pipeline(contentOf(source, folder), createGzip(), await writer(archive));
    await nodeFiles.sync(archive);
    // Not a link, which file systems of USB sticks do not have.
    closeSync(openSync(file, 'wx', 0o600));
    renameSync(archive, file);
    await nodeFiles.syncFolder(dirname(file));
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    if (hasErrno(error, 'EEXIST')) throw alreadyThere(file);
    const problem = `cannot write the backup ${file}: ${messageOf(error)}`;
    throw new OperatorError(withDiskAdvice(problem, error), 1, { cause: error });
  } finally {
    if (folder !== null) rmSync(folder, { recursive: true, force: true });
  }
}

/** Characters of a passphrase for the encryption key. */
export const MIN_PASSPHRASE = 12;

/** How the name of a folder begins in which a backup is written. */
export const TEMPORARY = '.backup-';

async function writer(file: string) {
  return (await open(file, 'wx', 0o600)).createWriteStream();
}

function alreadyThere(file: string): OperatorError {
  return new OperatorError(`${file} already exists: a backup never overwrites a file; choose another name`, 2);
}

/** The uncompressed archive, piece by piece. Its last part has the digests of the others. */
async function* contentOf(source: BackupSource, folder: string): AsyncGenerator<Buffer> {
  const { database, domain, box } = source;
  const madeAt = new Date();
  const copy = join(folder, PARTS.database);
  database.backup(copy);
  const files: Manifest['files'] = [];
  const hash = createHash('sha256');
  const size = statSync(copy).size;
  yield tarHeader(PARTS.database, size, madeAt);
  for await (const chunk of createReadStream(copy)) {
    hash.update(chunk);
    yield chunk;
  }
  yield tarPadding(size);
  files.push({ name: PARTS.database, size, sha256: hash.digest('hex') });
  for (const [name, content] of await smallParts(source)) {
    yield* entry(name, content, madeAt);
    files.push({ name, size: content.length, sha256: sha256(content) });
  }
  const digests = {
    format: FORMAT,
    made_at: madeAt.toISOString(),
    version: VERSION,
    schema: database.schema,
    domain,
    shared: database.isReplica,
    files,
  };
  const seal = box.seal(digestOf(digests), SEAL).toString('base64');
  const manifest: Manifest = { ...digests, seal };
  yield* entry(MANIFEST, Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`), madeAt);
  yield TAR_END;
}

function* entry(name: string, content: Buffer, madeAt: Date): Generator<Buffer> {
  yield tarHeader(name, content.length, madeAt);
  yield content;
  yield tarPadding(content.length);
}

async function smallParts({ folder, settings, box, withKey }: BackupSource): Promise<[string, Buffer][]> {
  const parts: [string, Buffer][] = PLAIN.flatMap((name) => {
    const content = contentIfThere(join(folder, name));
    return content === null ? [] : [[name, content]];
  });
  const caKey = contentIfThere(join(folder, 'ca-key.pem'));
  if (caKey !== null) parts.push([PARTS.caKey, box.seal(caKey.toString(), PARTS.caKey)]);
  parts.push([PARTS.settings, box.seal(settings, PARTS.settings)]);
  if (withKey) parts.push([PARTS.key, await sealKey(withKey.key, withKey.passphrase)]);
  return parts;
}

function contentIfThere(file: string): Buffer | null {
  try {
    return readFileSync(file);
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw explainUnreadable(file, error);
  }
}

/** A backup whose files are what was written. */
export interface Backup {
  readonly file: string;
  readonly manifest: Manifest;
  readonly parts: ReadonlyMap<string, Buffer>;
}

/**
 * Reads a backup, and checks it without its key.
 *
 * @throws {OperatorError} when it is damaged, or made by a newer version of this program
 */
export function readBackup(file: string): Backup {
  let packed: Buffer;
  try {
    packed = readFileSync(file);
  } catch (error) {
    throw explainUnreadable(file, error);
  }
  const { manifest, parts } = unpack(file, packed);
  const { schema, files } = manifest;
  if (schema > SCHEMA_VERSION) throw newer(file, manifest);
  const changed = files.find(({ name, sha256: digest }) => sha256(parts.get(name) ?? Buffer.of()) !== digest);
  if (changed) throw damaged(file, `${changed.name} does not have the digest that it was written with`);
  const more = [...parts.keys()].find((name) => !files.some((known) => known.name === name));
  if (more !== undefined) throw damaged(file, `${more} is not in its list`);
  return { file, manifest, parts };
}

function unpack(file: string, packed: Buffer): Omit<Backup, 'file'> {
  try {
    const parts = readTar(gunzipSync(packed));
    const manifest: unknown = JSON.parse(parts.get(MANIFEST)?.toString() ?? 'null');
    parts.delete(MANIFEST);
    const made = Digests.pick({ format: true, version: true }).parse(manifest);
    if (made.format > FORMAT) throw newer(file, made);
    return { manifest: Manifest.parse(manifest), parts };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const reason = error instanceof z.ZodError ? `${MANIFEST} is missing or incomplete` : messageOf(error);
    throw damaged(file, reason);
  }
}

function newer(file: string, { version }: Pick<Manifest, 'version'>): OperatorError {
  return new OperatorError(
    `${file} was made by a newer version of this program (${version}, this one is ${VERSION}): install that version, then restore`,
  );
}

function damaged(file: string, reason: string): OperatorError {
  return new OperatorError(
    `${file} is damaged, or no backup that "device-agent gateway backup" has made (${reason}): use another one`,
  );
}

/** Whether an encryption key is the one of a backup. @throws {OperatorError} when it is, and the backup was changed since */
export function isKeyOf({ file, manifest: { seal, ...digests } }: Backup, key: Buffer): boolean {
  const box = new SecretsBox(key);
  const sealed = Buffer.from(seal, 'base64');
  if (!box.opens(sealed, SEAL)) return false;
  if (box.open(sealed, SEAL) !== digestOf(digests)) throw damaged(file, `${MANIFEST} has changed`);
  return true;
}

function digestOf(digests: Omit<Manifest, 'seal'>): string {
  return sha256(Buffer.from(JSON.stringify(digests)));
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

const derive = promisify<string, Buffer, number, { N: number; r: number; p: number; maxmem: number }, Buffer>(scrypt);

/** Takes 64 MiB: who has the file can try as many passphrases as they like. */
const COST = { N: 65_536, r: 8, p: 2, maxmem: 128 * 1024 * 1024 };
const SALT_BYTES = 16;
const KEY_BYTES = 32;

async function sealKey(key: string, passphrase: string): Promise<Buffer> {
  const salt = randomBytes(SALT_BYTES);
  const box = new SecretsBox(await derive(passphrase, salt, KEY_BYTES, COST));
  return Buffer.concat([salt, box.seal(key, PARTS.key)]);
}

/** The encryption key in a backup; null: the passphrase is another one. */
export async function openKey({ parts }: Backup, passphrase: string): Promise<Buffer | null> {
  const sealed = parts.get(PARTS.key) ?? Buffer.of();
  const box = new SecretsBox(await derive(passphrase, sealed.subarray(0, SALT_BYTES), KEY_BYTES, COST));
  const body = sealed.subarray(SALT_BYTES);
  return box.opens(body, PARTS.key) ? Buffer.from(box.open(body, PARTS.key), 'base64') : null;
}
