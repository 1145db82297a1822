import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { hasErrno } from '../../../lib/errors.ts';
import { createDurablySync, explainUnwritable, writeDurably } from '../../../lib/files/durable-write.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Origin } from './replica.ts';

/** Beside the copy: a damaged one may not say that it is a copy. */
const ORIGIN_FILE = 'shared-database.json';
const OriginText = z.strictObject({ cluster: z.string().min(1), node: z.string().min(1) });

/** Beside the copy: where a gateway that starts without the shared database finds others that may reach it. */
const OTHERS_FILE = 'other-gateways.json';
const OthersText = z.array(z.strictObject({ id: z.string(), address: z.string() }));
export type OtherGateways = readonly z.output<typeof OthersText>[number][];

/** Between the name of a damaged copy and the time it was set aside. */
const DAMAGED = '.damaged-';
/** Added to the name of a copy that a read has found damaged. */
const FOUND_DAMAGED = '.found-damaged';
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

/** The other gateways that were known when the last process ended. */
export function readOthers(folder: string, log: Log): OtherGateways {
  try {
    return OthersText.parse(JSON.parse(readFileSync(join(folder, OTHERS_FILE), 'utf8')));
  } catch (err) {
    // They are known once the shared database answers.
    if (!hasErrno(err, 'ENOENT')) log.warn({ err }, 'recorded addresses of other gateways unreadable');
    return [];
  }
}

/** Notes the other gateways for the next start. */
export async function noteOthers(folder: string, others: OtherGateways, log: Log): Promise<void> {
  try {
    await writeDurably(join(folder, OTHERS_FILE), `${JSON.stringify(others)}\n`, 0o600);
  } catch (err) {
    log.warn({ err }, 'other gateways not recorded');
  }
}

/** Notes for the next start that a copy in use is damaged: its check may not find what a read has found. */
export function noteCopyDamaged(file: string, reason: string, log: Log): void {
  try {
    if (!existsSync(file + FOUND_DAMAGED)) createDurablySync(file + FOUND_DAMAGED, reason, 0o600);
  } catch (err) {
    log.warn({ err }, 'damage of the copy not recorded');
  }
}

/** Sets a copy aside that was noted to be damaged. @throws {OperatorError} when the disk rejects that */
export function setNotedCopyAside(file: string, log: Log): void {
  if (!existsSync(file + FOUND_DAMAGED)) return;
  setCopyAside(file, readFileSync(file + FOUND_DAMAGED, 'utf8'), log);
}

/**
 * Moves a damaged copy to another name, and deletes the one that was kept before, so that no crash loop fills the disk.
 * @throws {OperatorError} when the disk rejects that
 */
export function setCopyAside(file: string, reason: string, log: Log): void {
  const kept = `${file}${DAMAGED}${new Date().toISOString().replaceAll(/[-:.]/g, '')}`;
  const [folder, names] = [dirname(file), basename(file) + DAMAGED];
  try {
    const present = SUFFIXES.filter((suffix) => existsSync(file + suffix));
    for (const suffix of present) renameSync(file + suffix, kept + suffix);
    rmSync(file + FOUND_DAMAGED, { force: true });
    // A crash came after it was set aside.
    if (present.length === 0) return;
    const older = readdirSync(folder).filter((name) => name.startsWith(names) && !name.startsWith(basename(kept)));
    for (const name of older) rmSync(join(folder, name));
  } catch (error) {
    throw explainUnwritable(file, error);
  }
  log.error({ file, reason, kept }, 'damaged copy of the shared database set aside');
}
