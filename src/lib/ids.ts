import { randomBytes, randomFillSync } from 'node:crypto';

/** KSUID time starts here: seconds since the Unix epoch. */
const KSUID_EPOCH = 1_400_000_000;
const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const KSUID_LENGTH = 27;
/** A second's first id leaves the top half of the counter free, so counting up never overflows within it. */
const COUNTER_MASK = 0x7fff_ffff;
const KSUID_BYTES = 20;
/** Random bytes are asked for so many identifiers at once: each call costs more than the rest of an identifier. */
const BATCH = 64;

/** Hands out identifiers of the form `<prefix>_<KSUID>`. */
export interface IdSource {
  /**
   * The next identifier; each compares greater, as text, than every earlier one with the same prefix,
   * also when the clock jumps back.
   *
   * @param prefix the kind, without the underscore: `bot`, `rd`
   */
  next(prefix: string): string;
}

/**
 * Makes the source of identifiers of a process.
 *
 * A KSUID is 4 bytes of time and 16 random ones. Here the first four of the random ones count up within a
 * second, so that sorting by identifier is sorting by age, without ties.
 *
 * @param latest the greatest KSUID handed out by earlier processes, or null
 * @param wallClock milliseconds since the Unix epoch
 */
export function createIdSource(latest: string | null = null, wallClock: () => number = Date.now): IdSource {
  const last = latest === null ? null : decodeKsuid(latest);
  let seconds = last?.readUInt32BE(0) ?? 0;
  let counter = last?.readUInt32BE(4) ?? 0;
  const batch = Buffer.alloc(BATCH * KSUID_BYTES);
  let used = batch.length;
  const randomKsuid = () => {
    if (used === batch.length) {
      randomFillSync(batch);
      used = 0;
    }
    used += KSUID_BYTES;
    return batch.subarray(used - KSUID_BYTES, used);
  };
  return {
    next(prefix) {
      const bytes = randomKsuid();
      const now = Math.floor(wallClock() / 1000) - KSUID_EPOCH;
      if (now > seconds) {
        seconds = now;
        counter = bytes.readUInt32BE(4) & COUNTER_MASK;
      } else if (counter < 0xffff_ffff) {
        counter += 1;
      } else {
        seconds += 1;
        counter = 0;
      }
      bytes.writeUInt32BE(seconds, 0);
      bytes.writeUInt32BE(counter, 4);
      return `${prefix}_${encodeKsuid(bytes)}`;
    },
  };
}

/** The part of an identifier after its prefix. */
export function ksuidOf(id: string): string {
  return id.slice(id.lastIndexOf('_') + 1);
}

/** What a holder of a token presents: its identifier's KSUID, and the secret that only the holder knows. */
export interface TokenParts {
  ksuid: string;
  secret: string;
}

/**
 * Makes the token of a credential or key: `<KSUID of its id>_<secret>`.
 *
 * @returns the token as a whole, shown once, and its secret, of which only a hash is kept
 */
export function createToken(id: string): TokenParts & { token: string } {
  const secret = encodeBase58(randomBytes(16));
  const ksuid = ksuidOf(id);
  return { ksuid, secret, token: `${ksuid}_${secret}` };
}

/** Takes a token apart; null when it does not have the form of one. */
export function parseToken(token: string): TokenParts | null {
  const match = /^([0-9A-Za-z]{1,27})_([0-9A-Za-z]{1,64})$/.exec(token);
  return match?.[1] !== undefined && match[2] !== undefined ? { ksuid: match[1], secret: match[2] } : null;
}

function encodeKsuid(bytes: Buffer): string {
  // Long division of five 32-bit words: twenty times cheaper than BigInt, and every answer carries a fresh id.
  const words = [0, 4, 8, 12, 16].map((at) => bytes.readUInt32BE(at));
  let text = '';
  for (let place = 0; place < KSUID_LENGTH; place += 1) {
    let remainder = 0;
    for (let i = 0; i < words.length; i += 1) {
      const value = remainder * 0x1_0000_0000 + (words[i] ?? 0);
      words[i] = Math.floor(value / 62);
      remainder = value % 62;
    }
    text = BASE62.charAt(remainder) + text;
  }
  return text;
}

function decodeKsuid(text: string): Buffer | null {
  if (text.length !== KSUID_LENGTH) return null;
  let value = 0n;
  for (const char of text) {
    const digit = BASE62.indexOf(char);
    if (digit < 0) return null;
    value = value * 62n + BigInt(digit);
  }
  const hex = value.toString(16).padStart(40, '0');
  return hex.length === 40 ? Buffer.from(hex, 'hex') : null;
}

function encodeBase58(bytes: Buffer): string {
  let value = BigInt(`0x${bytes.toString('hex')}`);
  let text = '';
  while (value > 0n) {
    text = BASE58.charAt(Number(value % 58n)) + text;
    value /= 58n;
  }
  return text.padStart(21, '1');
}
