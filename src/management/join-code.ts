import { createHash } from 'node:crypto';

/** What a device needs to join a site. */
export interface JoinCode {
  /** Origin of the management API, on whose host devices enrol. */
  origin: string;
  /** SHA-256 of the gateway's CA certificate; null when public CAs sign all of its certificates. */
  pin: Buffer | null;
  /** SHA-256 of the gateway's CA certificate where that signs nothing but times, as public CAs sign all certificates; else null. */
  timePin?: Buffer | null;
  /** The same of the CA that comes after that one, as long as it is being changed; else null. */
  nextPin?: Buffer | null;
  /** Whether a public CA signs the certificate of `origin`, so that the pin is only for sessions. */
  isPublic: boolean;
  /** The secret of the enrolment key. */
  secret: string;
}

const PREFIX = 'join-';
const VERSION = 1;
const PIN_BYTES = 32;
const CHECK_BYTES = 4;
const HAS_PIN = 1;
const IS_PUBLIC = 2;

/** Writes a code as one word that survives being copied: `join-…`, with a checksum. */
export function formatJoinCode({ origin, pin, timePin = null, nextPin = null, isPublic, secret }: JoinCode): string {
  const further = [timePin, nextPin].map((each) => each?.toString('base64url') ?? '');
  const words = [origin.replace(/^https:\/\//, ''), secret, ...further];
  const flags = (pin === null ? 0 : HAS_PIN) | (isPublic ? IS_PUBLIC : 0);
  const body = Buffer.concat([
    Buffer.from([VERSION, flags]),
    pin ?? Buffer.alloc(0),
    // Earlier versions ignore further words; an empty one has no pin.
    Buffer.from(words.join(' ').trimEnd()),
  ]);
  return PREFIX + Buffer.concat([body, checksum(body)]).toString('base64url');
}

/** Reads a code; null when it is incomplete, damaged or no code. */
export function parseJoinCode(text: string): JoinCode | null {
  const word = text.trim();
  if (!word.startsWith(PREFIX) || /[^\w-]/.test(word)) return null;
  const bytes = Buffer.from(word.slice(PREFIX.length), 'base64url');
  const body = bytes.subarray(0, -CHECK_BYTES);
  const [version, flags = 0] = body;
  if (version !== VERSION || !checksum(body).equals(bytes.subarray(-CHECK_BYTES))) return null;
  const start = 2 + (flags & HAS_PIN ? PIN_BYTES : 0);
  const [place = '', secret = '', ...further] = body.subarray(start).toString().split(' ');
  const origin = place.includes('://') ? place : `https://${place}`;
  if (!URL.canParse(origin) || secret === '') return null;
  const pin = flags & HAS_PIN ? body.subarray(2, start) : null;
  const [timePin = null, nextPin = null] = further.map((word) => (word === '' ? null : Buffer.from(word, 'base64url')));
  return { origin, pin, timePin, nextPin, isPublic: (flags & IS_PUBLIC) !== 0, secret };
}

function checksum(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest().subarray(0, CHECK_BYTES);
}
