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
export function walDamage(wal: Buffer): string | null {
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
