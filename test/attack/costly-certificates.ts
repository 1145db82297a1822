import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, randomInt, sign } from 'node:crypto';
import { madeUpRsa, pemOf, spkiOf } from '../support/costly-keys.ts';

/** A certificate or a chain of them, and its key; PEM, as TLS takes them. */
export interface KeyPair {
  cert: string;
  key: string;
}

const RSA_SHA256 = '2a864886f70d01010b';
const COMMON_NAME = '550403';
const BASIC_CONSTRAINTS = '551d13';

/**
 * A key whose signatures take a hundred times as long to check as usual ones: OpenSSL allows an exponent as long as the key up to
 * 3,072 bits. It takes its owner no longer to sign with it than with another one.
 */
export function longExponentKey(): KeyObject {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 3072 });
  const jwk = privateKey.export({ format: 'jwk' });
  const [n, p, q] = [jwk.n, jwk.p, jwk.q].map((text) => numberOf(Buffer.from(text ?? '', 'base64url')));
  if (!n || !p || !q) throw new Error('the key has no numbers');
  const phi = (p - 1n) * (q - 1n);
  for (;;) {
    const e = numberOf(randomBytes(383)) | 1n | (1n << 3063n);
    const d = inverse(e, phi);
    if (d === null) continue;
    const numbers = {
      ...jwk,
      e: base64url(e),
      d: base64url(d),
      dp: base64url(d % (p - 1n)),
      dq: base64url(d % (q - 1n)),
    };
    return createPrivateKey({ key: numbers, format: 'jwk' });
  }
}

/** A chain of so many certificates, each of which has another name and the same key. */
export function chainWith(key: KeyObject, length: number): KeyPair {
  const certificates = Array.from({ length }, (_, at) => {
    const [subject, issuer] = [`${at}`, `${Math.min(at + 1, length - 1)}`];
    const signed = certificate(subject, issuer, key);
    return pem(sequence(signed, ALGORITHM, bits(sign('sha256', signed, key))));
  });
  return { cert: certificates.join(''), key: pemOf(key) };
}

/** A key of so many bits, made of random numbers rather than primes, with a certificate that nobody has signed. */
export function madeUpKey(length: number): KeyPair {
  const key = madeUpRsa(length);
  const signed = certificate('made up', 'made up', key);
  return { cert: pem(sequence(signed, ALGORITHM, bits(randomBytes(length / 8)))), key: pemOf(key) };
}

/** What is signed of a certificate (RFC 5280, section 4.1). */
function certificate(subject: string, issuer: string, key: KeyObject): Buffer {
  const constraints = sequence(oid(BASIC_CONSTRAINTS), value(0x04, sequence(value(0x01, Buffer.of(0xff)))));
  return sequence(
    value(0xa0, integer(2n)),
    integer(BigInt(randomInt(1, 2 ** 40))),
    ALGORITHM,
    name(issuer),
    sequence(...['200101000000Z', '491231235959Z'].map((time) => value(0x17, Buffer.from(time)))),
    name(subject),
    Buffer.from(spkiOf(key)),
    value(0xa3, sequence(constraints)),
  );
}

const name = (text: string) => sequence(value(0x31, sequence(oid(COMMON_NAME), value(0x0c, Buffer.from(text)))));

/** One value in DER (X.690). */
function value(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), content]);
  const size = bytesOf(BigInt(length));
  return Buffer.concat([Buffer.of(tag, 0x80 | size.length), size, content]);
}

const sequence = (...parts: readonly Buffer[]) => value(0x30, ...parts);
const oid = (hex: string) => value(0x06, Buffer.from(hex, 'hex'));
const bits = (bytes: Buffer) => value(0x03, Buffer.of(0), bytes);
// A zero in front: it is not negative.
const integer = (number: bigint) =>
  value(0x02, bytesOf(number).readUInt8() < 0x80 ? Buffer.of() : Buffer.of(0), bytesOf(number));
const ALGORITHM = sequence(oid(RSA_SHA256), value(0x05));

function pem(der: Buffer): string {
  const lines = der.toString('base64').replace(/.{64}(?!$)/g, '$&\n');
  return `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`;
}

function bytesOf(number: bigint): Buffer {
  const hex = number.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex');
}

const numberOf = (bytes: Buffer) => BigInt(`0x${bytes.toString('hex')}`);
const base64url = (number: bigint) => bytesOf(number).toString('base64url');

/** The inverse of a number; null without one. */
function inverse(number: bigint, modulus: bigint): bigint | null {
  let [left, right, factor, next] = [modulus, number % modulus, 0n, 1n];
  while (right > 0n) {
    const quotient = left / right;
    [left, right] = [right, left - quotient * right];
    [factor, next] = [next, factor - quotient * next];
  }
  return left === 1n ? ((factor % modulus) + modulus) % modulus : null;
}
