import { existsSync, linkSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { createDurablySync, nodeFiles, withDiskAdvice } from '../../lib/files/durable-write.ts';
import { SecretsBox } from '../../lib/secrets-box.ts';
import { shareCa } from '../certificates/local-ca/shared-ca.ts';
import { replaceShared } from '../store/shared/replace-shared.ts';
import { Database, REPLICA_TABLES } from '../store/sql/database.ts';
import { type Backup, PARTS, writeBackup } from './backup-file.ts';

const KEY_FILE = 'encryption.key';
const CA_KEY_FILE = 'ca-key.pem';
/** Belong to a database or a CA that is replaced. */
const OF_DATABASE = [
  'gateway.db-wal',
  'gateway.db-shm',
  'gateway.db.rescued',
  'gateway.db.found-damaged',
  'shared-database.json',
  'other-gateways.json',
];
const OF_CA = 'leaves';

export interface RestoreTarget {
  /** The gateway's folder; no other process uses it. */
  folder: string;
  /** The key of the backup. */
  key: Buffer;
  /** Whether the key is a setting; else the folder has it. */
  isKeySet: boolean;
  /** Of the shared database, which gets the content; null: the folder gets it. */
  databaseUrl: string | null;
  domain: string;
  /** The settings here, as lines of `.env`. */
  settings: string;
}

/**
 * Puts a backup in place of what a stopped gateway has. Everything is written beside it and checked first.
 *
 * @param backup checked, as is its key
 * @returns the folder with what was replaced; null: there was nothing
 * @throws {OperatorError} when the database in the backup is unsound, or a gateway serves the shared database
 */
export async function restoreBackup(backup: Backup, target: RestoreTarget): Promise<string | null> {
  const { folder, databaseUrl } = target;
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const staged = mkdtempSync(join(folder, 'restoring-'));
  const time = new Date().toISOString().replaceAll(':', '-');
  const replaced = new ReplacedFiles(folder, join(folder, `replaced-${time}`));
  try {
    stageFiles(backup, staged, target);
    await checkDatabase(backup, join(staged, PARTS.database));
    if (databaseUrl !== null) await replaceContent(staged, databaseUrl, replaced, target);
    replaced.replace(staged, KEY_FILE);
    replaced.replace(staged, CA_KEY_FILE);
    if (replaced.replace(staged, PARTS.ca)) replaced.moveAway(OF_CA);
    // Only its own encryption key opens it.
    if (!existsSync(join(staged, PARTS.acmeAccount))) replaced.moveAway(PARTS.acmeAccount);
    replaced.replace(staged, PARTS.acmeAccount);
    for (const name of OF_DATABASE) replaced.moveAway(name);
    // The copy of a shared database is made again at the next start.
    if (databaseUrl === null) replaced.replace(staged, PARTS.database);
    else replaced.moveAway(PARTS.database);
    return await replaced.settle();
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const problem = `cannot restore ${backup.file} into ${folder}: ${messageOf(error)}`;
    throw new OperatorError(withDiskAdvice(problem, error), 1, { cause: error });
  } finally {
    rmSync(staged, { recursive: true, force: true });
  }
}

function stageFiles({ parts }: Backup, staged: string, { key, isKeySet }: RestoreTarget): void {
  const put = (name: string, content: Buffer | string | undefined, mode = 0o600) => {
    if (content !== undefined) createDurablySync(join(staged, name), content, mode);
  };
  const caKey = parts.get(PARTS.caKey);
  if (!isKeySet) put(KEY_FILE, `${key.toString('base64')}\n`);
  put(CA_KEY_FILE, caKey && new SecretsBox(key).open(caKey, PARTS.caKey));
  put(PARTS.ca, parts.get(PARTS.ca), 0o644);
  put(PARTS.acmeAccount, parts.get(PARTS.acmeAccount));
  put(PARTS.database, parts.get(PARTS.database));
}

/** Opens the database, and removes what was true of its gateway's processes only. */
async function checkDatabase({ file }: Backup, path: string): Promise<void> {
  const database = Database.open(path);
  try {
    const [problem] = database.problems();
    if (problem !== undefined)
      throw new OperatorError(`the database in ${file} is damaged (${problem}): use another backup`);
    await database.write(() => {
      for (const table of REPLICA_TABLES) database.run(`DROP TABLE IF EXISTS ${table}`);
      database.run('DELETE FROM online');
    });
  } finally {
    database.close();
  }
}

async function replaceContent(
  staged: string,
  url: string,
  replaced: ReplacedFiles,
  { folder, key, domain, settings }: RestoreTarget,
): Promise<void> {
  const box = new SecretsBox(key);
  const content = Database.open(join(staged, PARTS.database));
  const present = Database.open(join(staged, 'present.db'));
  try {
    const [caPem, keyPem] = [PARTS.ca, CA_KEY_FILE].map((name) => join(staged, name)) as [string, string];
    if (existsSync(caPem))
      await shareCa({ database: content, box }, readFileSync(caPem, 'utf8'), readFileSync(keyPem, 'utf8'));
    const keep = () =>
      writeBackup(replaced.place('shared-database.tar.gz'), { database: present, folder, domain, settings, box });
    await replaceShared({ url, content: content.replicaParts(), present: present.replicaParts(), keep });
  } finally {
    content.close();
    present.close();
  }
}

/** Puts files in place of others, which it keeps in a folder of their own. */
class ReplacedFiles {
  #isUsed = false;

  /** @param kept the folder for what is replaced, which is made when it is needed */
  constructor(
    private readonly folder: string,
    private readonly kept: string,
  ) {}

  /** Where something is kept. */
  place(name: string): string {
    if (!this.#isUsed) mkdirSync(this.kept, { mode: 0o700 });
    this.#isUsed = true;
    return join(this.kept, name);
  }

  /** Puts a file in place of the one with its name, at once, if there is such a file. @returns whether it is another one */
  replace(staged: string, name: string): boolean {
    const [from, to] = [join(staged, name), join(this.folder, name)];
    if (!existsSync(from)) return false;
    if (existsSync(to)) {
      if (readFileSync(from).equals(readFileSync(to))) return false;
      linkSync(to, this.place(name));
    }
    renameSync(from, to);
    return true;
  }

  moveAway(name: string): void {
    const from = join(this.folder, name);
    if (existsSync(from)) renameSync(from, this.place(name));
  }

  /** Makes it last. @returns the folder with what was replaced; null: there was nothing */
  async settle(): Promise<string | null> {
    if (this.#isUsed) await nodeFiles.syncFolder(this.kept);
    await nodeFiles.syncFolder(this.folder);
    return this.#isUsed ? this.kept : null;
  }
}
