import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Origin } from './replica.ts';

/** Beside the copy: a damaged one may not say that it is a copy. */
const ORIGIN_FILE = 'shared-database.json';
const OriginText = z.strictObject({ cluster: z.string().min(1), node: z.string().min(1) });

/** Between the name of a damaged copy and the time it was set aside. */
const DAMAGED = '.damaged-';
/** Of the files of a database. The log goes first: alone, it would be taken for damage again. */
const SUFFIXES = ['-wal', '-shm', ''];

/** What the database in a folder is a copy of; null when that is not known. */
export function readOrigin(folder: string): Origin | null {
  try {
    return OriginText.parse(JSON.parse(readFileSync(join(folder, ORIGIN_FILE), 'utf8')));
  } catch {
    return null; // then a damaged database counts as one of its own
  }
}

/** Notes what the database in a folder is a copy of; null: it is none. A disk that rejects it is no reason not to start. */
export async function noteOrigin(folder: string, origin: Origin | null, log: Log): Promise<void> {
  const file = join(folder, ORIGIN_FILE);
  const known = readOrigin(folder);
  try {
    if (origin === null) rmSync(file, { force: true });
    else if (known?.cluster !== origin.cluster || known.node !== origin.node)
      await writeDurably(file, `${JSON.stringify(origin)}\n`, 0o600);
  } catch (err) {
    log.warn({ err }, 'origin of the copy not recorded');
  }
}

/** Moves a damaged copy to another name, and deletes the one that was kept before, so that no crash loop fills the disk. */
export function setCopyAside(file: string, reason: string, log: Log): void {
  const kept = `${file}${DAMAGED}${new Date().toISOString().replaceAll(/[-:.]/g, '')}`;
  for (const suffix of SUFFIXES) if (existsSync(file + suffix)) renameSync(file + suffix, kept + suffix);
  for (const name of readdirSync(dirname(file)))
    if (name.startsWith(basename(file) + DAMAGED) && !name.startsWith(basename(kept))) rmSync(join(dirname(file), name));
  log.error({ file, reason, kept }, 'damaged copy of the shared database set aside');
}
