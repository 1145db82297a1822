import { createPublicKey, generateKeyPairSync, type JsonWebKey, type KeyObject } from 'node:crypto';
import { expect, it } from 'vitest';
import { unusualJwk } from '../../../src/lib/tls/usual-jwk.ts';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey;
const { n: modulus = '' } = rsa.export({ format: 'jwk' });

const encoded = (number: bigint) => {
  const hex = number.toString(16);
  return Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex').toString('base64url');
};

/** A key without a private one, and without primes: only its numbers are looked at. */
const rsaWith = (bits: number, exponent = 65_537n): KeyObject =>
  createPublicKey({ key: { kty: 'RSA', n: encoded(1n << BigInt(bits - 1)), e: encoded(exponent) }, format: 'jwk' });
const curve = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve }).publicKey;

it.each<[string, KeyObject]>([
  ['RSA with 2,048 bits', rsa],
  ['RSA with 3,072 bits', rsaWith(3_072)],
  ['RSA with 4,096 bits', rsaWith(4_096)],
  ['P-256', curve('P-256')],
  ['P-384', curve('P-384')],
  ['P-521', curve('P-521')],
  ['Ed25519', generateKeyPairSync('ed25519').publicKey],
])('a key is usual: %s', (_, key) => {
  expect(unusualJwk(key.export({ format: 'jwk' }))).toBeNull();
});

it.each<[string, KeyObject, RegExp]>([
  ['RSA with 1,024 bits', rsaWith(1_024), /RSA key must have 2048 to 4096 bits/],
  ['RSA with 2,047 bits', rsaWith(2_047), /RSA key/],
  ['RSA with 4,097 bits', rsaWith(4_097), /RSA key/],
  ['RSA with 16,384 bits', rsaWith(16_384), /RSA key/],
  ['RSA with the exponent 3', rsaWith(2_048, 3n), /RSA key/],
  ['RSA with an exponent as long as the key', rsaWith(3_072, (1n << 3_071n) - 1n), /RSA key/],
  ['RSA with the exponent 65,537 and a long zero behind it', rsaWith(2_048, 65_537n << 64n), /RSA key/],
  ['another curve', curve('secp256k1'), /curve/],
  ['Ed448', generateKeyPairSync('ed448').publicKey, /RSA, ECDSA or Ed25519/],
])('a key is not usual: %s', (_, key, reason) => {
  expect(unusualJwk(key.export({ format: 'jwk' }))).toMatch(reason);
});

it.each<[string, JsonWebKey]>([
  ['no numbers', { kty: 'RSA' }],
  ['an empty exponent', { kty: 'RSA', n: modulus, e: '' }],
  ['numbers that are none', { kty: 'RSA', n: modulus, e: '...' }],
  ['a modulus of a megabyte', { kty: 'RSA', n: 'A'.repeat(1_048_576), e: 'AQAB' }],
  ['the curve of another kind', { kty: 'OKP', crv: 'P-256' }],
  ['a secret', { kty: 'oct', k: 'AQAB' }],
  ['nothing', {}],
])('a JSON Web Key is not usual with %s', (_, key) => {
  expect(unusualJwk({ ...key })).not.toBeNull();
});

it('takes zeros in front of numbers, as some programs write them', () => {
  const n = Buffer.concat([Buffer.alloc(1), Buffer.from(modulus, 'base64url')]).toString('base64url');
  expect(unusualJwk({ kty: 'RSA', n, e: 'AAEAAQ' })).toBeNull();
});
