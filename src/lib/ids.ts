import { randomBytes, randomFillSync } from 'node:crypto';

/** Start of KSUID time, in seconds since the Unix epoch. */
const KSUID_EPOCH = 1_400_000_000;
const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const KSUID_LENGTH = 27;
/** The first id of each second clears the top bit of the counter, which leaves room to count up. */
const COUNTER_MASK = 0x7fff_ffff;
const KSUID_BYTES = 20;
/** Identifiers per call for random bytes: such a call costs more than the rest of an identifier. */
const BATCH = 64;

/** Generates identifiers of the form `<prefix>_<KSUID>`. */
export interface IdSource {
  /**
   * Returns the next identifier. As text, it is greater than all earlier ones with the same prefix, even when the
   * clock jumps back.
   *
   * @param prefix the kind, without the underscore: `bot`, `rd`
   * @param after an identifier of another process, whose KSUID the next one is greater than, too
   */
  next(prefix: string, after?: string): string;
}

/**
 * Creates the process's source of identifiers.
 *
 * A KSUID has 4 bytes of time and 16 random bytes. Here, the first four random bytes count up within a second, so that
 * identifiers sort by age.
 *
 * @param latest the greatest KSUID of earlier processes, or null
 * @param wallClock milliseconds since the Unix epoch
 */
export function createIdSource(latest: string | null = null, wallClock: () => number = Date.now): IdSource {
  const last = decodeKsuid(latest ?? '');
  let newest = last === null ? '' : String(latest);
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
  const goBeyond = (id: string) => {
    const ksuid = ksuidOf(id);
    // As text, KSUIDs sort as their bytes do.
    const other = ksuid <= newest ? null : decodeKsuid(ksuid);
    if (other === null) return;
    const [otherSeconds, otherCounter] = [other.readUInt32BE(0), other.readUInt32BE(4)];
    if (otherSeconds < seconds || (otherSeconds === seconds && otherCounter <= counter)) return;
    [seconds, counter] = [otherSeconds, otherCounter];
  };
  return {
    next(prefix, after) {
      if (after !== undefined) goBeyond(after);
      const bytes = randomKsuid();
      const now = Math.floor(wallClock() / 1000) - KSUID_EPOCH;
      if (now > seconds) {
        seconds = now;
        counter = bytes.readUInt32BE(4) & COUNTER_MASK;
      } else if (counter < 0xffff_ffff) {
        counter += 1;
      } else {
        [seconds, counter] = [seconds + 1, 0];
      }
      bytes.writeUInt32BE(seconds, 0);
      bytes.writeUInt32BE(counter, 4);
      newest = encodeKsuid(bytes);
      return `${prefix}_${newest}`;
    },
  };
}

/** The part of an identifier after its prefix. */
export function ksuidOf(id: string): string {
  return id.slice(id.lastIndexOf('_') + 1);
}

/** When an identifier was made, to the second; null without a KSUID. */
export function momentOf(id: string): Date | null {
  const bytes = decodeKsuid(ksuidOf(id));
  return bytes && new Date((bytes.readUInt32BE(0) + KSUID_EPOCH) * 1000);
}

/** The parts of a token: the KSUID of its identifier, and the secret. */
export interface TokenParts {
  ksuid: string;
  secret: string;
}

/**
 * Creates the token of a credential or key: `<KSUID of its id>_<secret>`.
 *
 * @param random 16 bytes that nobody can guess
 * @returns the token, which is shown once, and its secret, of which only a hash is stored
 */
export function createToken(id: string, random: Buffer = randomBytes(16)): TokenParts & { token: string } {
  const secret = encodeBase58(random);
  const ksuid = ksuidOf(id);
  return { ksuid, secret, token: `${ksuid}_${secret}` };
}

/** Parses a token; null when its form is invalid. */
export function parseToken(token: string): TokenParts | null {
  const match = /^([0-9A-Za-z]{1,27})_([0-9A-Za-z]{1,64})$/.exec(token);
  return match?.[1] !== undefined && match[2] !== undefined ? { ksuid: match[1], secret: match[2] } : null;
}

function encodeKsuid(bytes: Buffer): string {
  // Long division of five 32-bit words: twenty times cheaper than BigInt, and every response has a new id.
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
