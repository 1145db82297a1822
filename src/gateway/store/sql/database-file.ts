import { randomUUID } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type Libsql from 'libsql';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { createDurablySync, withDiskAdvice } from '../../../lib/files/durable-write.ts';
import { DatabaseDamaged, isDamage } from './database-problems.ts';
import { migrate } from './migrations.ts';
import { sqlEngine } from './sql-engine.ts';

/** How often a log that looks damaged is read: another process may be writing it. */
const WAL_READS = 3;

/**
 * Where a database's header says how it is written to, and what it says of one without a write-ahead log:
 * https://www.sqlite.org/fileformat2.html#file_format_version_numbers.
 */
const WRITE_VERSION_AT = 18;
const WITHOUT_LOG = 1;

/** Of the index of the log, `-shm`, as the engine creates it; more than its first transaction takes. */
const ROOM_BYTES = 65_536;
/** The engine writes one byte of each such block of the index, which reserves the whole one on most file systems. */
const INDEX_BLOCK_BYTES = 4096;
/** The index's header, which processes change at any time: https://www.sqlite.org/walformat.html#the_wal_index_file_format. */
const INDEX_HEADER_BYTES = 136;

/** @throws {OperatorError} when the database's log is damaged */
export function checkLog(file: string): void {
  let found: string | null = null;
  for (let reads = 0; reads < WAL_READS; reads += 1) {
    const before: string | null = found;
    found = sizeOf(`${file}-wal`) === null ? null : walDamage(readFileSync(`${file}-wal`));
    if (found === null) return;
    if (found === before) throw new DatabaseDamaged(file, `in its log ${file}-wal, ${found}`);
  }
}

/** The mode of `PRAGMA auto_vacuum` in which free pages can be returned to the disk. */
export const INCREMENTAL = 2;

/**
 * Creates the database if it is missing, and checks for damage that the engine would silently overwrite.
 *
 * A new database gets its name only once it is complete. So an empty file is damage, and not a first start that a power cut
 * ended. The engine would treat it as new and delete the log, which may still hold everything.
 *
 * @throws {OperatorError} when the database is damaged; the system's error when the file cannot be used
 */
export function prepareDatabaseFile(file: string): void {
  const size = sizeOf(file);
  const log = `${file}-wal`;
  if (size === null && (sizeOf(log) ?? 0) > 0) throw new DatabaseDamaged(file, `it is missing, and ${log} is not`);
  const rescue = rescueOf(file);
  if (size === null && existsSync(rescue))
    throw new OperatorError(`the database ${file} is missing, and ${rescue} has what it had: rename that to ${file}`);
  if (size === 0) throw new DatabaseDamaged(file, 'it is empty');
  if (size === null) {
    createDatabase(file);
  } else {
    accessSync(file, constants.R_OK | constants.W_OK);
    // The engine creates files beside it, and only reports "readonly" when it cannot.
    accessSync(dirname(file), constants.W_OK);
    if ((sizeOf(log) ?? 0) > 0 && !hasLogs(file)) {
      throw new OperatorError(
        `the database ${file} is a backup, and ${log} is the log of another one, which must not be written into it: ` +
          `move ${log} and ${file}-shm aside`,
      );
    }
    checkLog(file);
    requireRoom(dirname(file));
  }
}

/** Where a gateway saves the content of its database when that is deleted while in use. */
export function rescueOf(file: string): string {
  return `${file}.rescued`;
}

/** Without room for its index, which is mapped memory, the kernel kills the engine's process. @throws such as ENOSPC */
function requireRoom(folder: string): void {
  const probe = join(folder, 'room.tmp');
  try {
    writeFileSync(probe, Buffer.alloc(ROOM_BYTES, 1));
  } finally {
    rmSync(probe, { force: true });
  }
}

/**
 * Gives the whole index of the log its place on the disk, which smaller blocks do not have yet: a disk that becomes full
 * would kill the process when it uses them.
 */
export function reserveIndex(engine: Libsql.Database, file: string): void {
  if (statfsSync(file).bsize >= INDEX_BLOCK_BYTES) return;
  // Stays open until the process ends: closing it would release the engine's own locks on that file
  // (https://www.sqlite.org/howtocorrupt.html, posix_close_bug), and another process would then truncate it under the engine.
  const index = openSync(`${file}-shm`, 'r+');
  // Nobody else writes behind the header meanwhile.
  engine.exec('BEGIN IMMEDIATE');
  try {
    const bytes = readFileSync(index);
    writeSync(index, bytes, INDEX_HEADER_BYTES, Math.max(0, bytes.length - INDEX_HEADER_BYTES), INDEX_HEADER_BYTES);
  } finally {
    engine.exec('ROLLBACK');
  }
}

export function asOperatorError(error: unknown, file: string): unknown {
  if (error instanceof OperatorError) return error;
  const text = messageOf(error);
  if (isDamage(error)) return new DatabaseDamaged(file, text, { cause: error });
  return new OperatorError(withDiskAdvice(`cannot open the database ${file}: ${text}`, error), 1, { cause: error });
}

/** Creates an empty file that only its owner can read; the engine only writes backups into empty files. */
export function createPrivately(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if (hasErrno(error, 'EEXIST')) {
      throw new OperatorError(`${file} already exists: a backup never overwrites a file; choose another name`, 2);
    }
    throw new OperatorError(`cannot write the backup ${file}: ${messageOf(error)}`, 1, { cause: error });
  }
}

export function syncFile(file: string): void {
  const descriptor = openSync(file, 'r+');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function createDatabase(file: string): void {
  // Not in a folder of its own: on FUSE and NFS, files that the engine still has open stay there, and it cannot be deleted.
  const made = `${file}.new-${randomUUID()}`;
  try {
    closeSync(openSync(made, 'wx', 0o600));
    const engine = new (sqlEngine())(made);
    try {
      engine.exec(`PRAGMA auto_vacuum = ${INCREMENTAL}`);
      migrate(engine, file);
    } finally {
      engine.close();
    }
    // A copy, because the engine recognizes files that it has opened by their inode.
    createDurablySync(file, readFileSync(made), 0o600);
  } catch (error) {
    // Another process was faster.
    if (!hasErrno(error, 'EEXIST')) throw error;
  } finally {
    for (const suffix of ['', '-journal']) rmSync(made + suffix, { force: true });
  }
}

/** Whether the database was ever used with a log. A backup was not, but the engine would apply any log it finds. */
function hasLogs(file: string): boolean {
  const header = Buffer.alloc(WRITE_VERSION_AT + 1);
  const descriptor = openSync(file, 'r');
  try {
    readSync(descriptor, header, 0, header.length, 0);
  } finally {
    closeSync(descriptor);
  }
  return header[WRITE_VERSION_AT] !== WITHOUT_LOG;
}

function sizeOf(file: string): number | null {
  return statSync(file, { throwIfNoEntry: false })?.size ?? null;
}

const HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const MAGIC = 0x377f0682;
/** Set in the magic number when checksums read the words as big-endian. */
const BIG_ENDIAN = 1;

/** The running checksum of a write-ahead log, which every frame continues. */
type Checksum = readonly [number, number];

/**
 * Detects damage to a write-ahead log that a power cut does not explain; null for a sound log or one with a torn end.
 *
 * The engine reads a log up to the first invalid frame, and silently overwrites the rest. That is right for a transaction
 * that a power cut interrupted, but loses committed ones when the disk damaged the log. The log is synced after each commit,
 * so a commit with frames after it was on disk: that distinguishes the two.
 *
 * The format is SQLite's, https://www.sqlite.org/fileformat2.html#walformat.
 */
function walDamage(wal: Buffer): string | null {
  if (wal.length <= HEADER_BYTES) return null;
  const magic = wal.readUInt32BE(0);
  const words = (magic & BIG_ENDIAN) === 0 ? littleEndian : bigEndian;
  const sum = add([0, 0], wal.subarray(0, 24), words);
  // The header is synced before the first frame is written.
  if (magic >>> 1 !== MAGIC >>> 1 || !matches(sum, wal, 24)) return 'its first bytes are not what they were';
  const frameBytes = FRAME_HEADER_BYTES + wal.readUInt32BE(8);
  const broken = firstBroken(wal, frameBytes, sum, words);
  return hasSyncedCommit(wal, frameBytes, broken) ? `what was written at byte ${broken} has changed` : null;
}

/** Where the engine stops reading. */
function firstBroken(wal: Buffer, frameBytes: number, start: Checksum, words: Words): number {
  let sum = start;
  let at = HEADER_BYTES;
  for (; at + frameBytes <= wal.length; at += frameBytes) {
    if (!isOfThisLog(wal, at)) break;
    sum = add(sum, wal.subarray(at, at + 8), words);
    sum = add(sum, wal.subarray(at + FRAME_HEADER_BYTES, at + frameBytes), words);
    if (!matches(sum, wal, at + 16)) break;
  }
  return at;
}

/** Whether a synced commit exists at or after the offset: later frames follow it. */
function hasSyncedCommit(wal: Buffer, frameBytes: number, from: number): boolean {
  let committed = false;
  for (let at = from; at + FRAME_HEADER_BYTES <= wal.length; at += frameBytes) {
    const isOurs = isOfThisLog(wal, at);
    if (isOurs && committed) return true;
    committed ||= isOurs && wal.readUInt32BE(at + 4) !== 0;
  }
  return false;
}

/** Frames of an earlier round through the file have other salts. */
function isOfThisLog(wal: Buffer, at: number): boolean {
  return wal.compare(wal, 16, 24, at + 8, at + 16) === 0;
}

type Words = (bytes: Buffer, at: number) => number;
const littleEndian: Words = (bytes, at) => bytes.readUInt32LE(at);
const bigEndian: Words = (bytes, at) => bytes.readUInt32BE(at);

function add([first, second]: Checksum, bytes: Buffer, word: Words): Checksum {
  let [a, b] = [first, second];
  for (let at = 0; at < bytes.length; at += 8) {
    a = (a + word(bytes, at) + b) >>> 0;
    b = (b + word(bytes, at + 4) + a) >>> 0;
  }
  return [a, b];
}

function matches([first, second]: Checksum, wal: Buffer, at: number): boolean {
  return wal.readUInt32BE(at) === first && wal.readUInt32BE(at + 4) === second;
}
