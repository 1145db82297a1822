import { generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { expect, it } from 'vitest';
import {
  isCheapToVerify,
  publicKeyProblem,
  readCertificates,
  readKeyPair,
  readPrivateKey,
  requireSoundSignatures,
} from '../../../src/lib/tls/usual-keys.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { COSTLY_KEYS, changedRsa, madeUpRsa, OUT_OF_RANGE, pemOf, spkiOf } from '../../support/costly-keys.ts';

const rsa = (modulusLength: number, publicExponent = 65_537) =>
  generateKeyPairSync('rsa', { modulusLength, publicExponent }).privateKey;
/** Making one takes a second on a slow machine. */
const proper = rsa(2048);
const ec = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve }).privateKey;

const USUAL: readonly [string, () => KeyObject][] = [
  ['RSA with 2048 bits', () => proper],
  ['P-256', () => ec('P-256')],
  ['P-384', () => ec('P-384')],
  ['Ed25519', () => generateKeyPairSync('ed25519').privateKey],
];

it.each(USUAL)('a key of %s can be used', async (_name, make) => {
  const key = make();
  expect(pemOf(readPrivateKey(pemOf(key)))).toBe(pemOf(key));
  const { certificatePem } = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(key) });
  expect(readKeyPair(`a comment\n${certificatePem}`, pemOf(key)).key).toBe(pemOf(key));
  expect(isCheapToVerify(new X509Certificate(certificatePem).raw)).toBe(true);
  expect(publicKeyProblem(spkiOf(key))).toBeNull();
});

const UNUSUAL: readonly [name: string, make: () => KeyObject, is: string][] = [
  ['RSA with 16384 bits', () => madeUpRsa(16_384), 'an RSA key with 16384 bits'],
  ['RSA with 1024 bits', () => rsa(1024), 'an RSA key with 1024 bits'],
  ['RSA with another exponent', () => madeUpRsa(2048, { e: 8 }), 'an RSA key with 2048 bits and an unusual exponent'],
  [
    'RSA for PSS only',
    () => generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).privateKey,
    'a key for RSASSA-PSS',
  ],
  ['P-521', () => ec('P-521'), 'a key for P-521'],
  ['Ed448', () => generateKeyPairSync('ed448').privateKey, 'a key for Ed448'],
  ['secp256k1', () => ec('secp256k1'), 'a key of an unknown kind'],
  ['X25519', () => generateKeyPairSync('x25519').privateKey, 'a key of an unknown kind'],
];

it.each(UNUSUAL)('a key of %s is refused, and so is its certificate', async (_name, make, is) => {
  const key = make();
  expect(() => readPrivateKey(pemOf(key))).toThrow(`is ${is}; use RSA with 2048 to 4096 bits`);
  const { certificatePem } = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(key) });
  expect(() => readCertificates(certificatePem)).toThrow(`has ${is}; use RSA with 2048 to 4096 bits`);
});

it('an RSA key in the form of PKCS #1 can be used', () => {
  expect(pemOf(readPrivateKey(changedRsa(proper, {})))).toBe(pemOf(proper));
});

it.each([
  ['a factor', { p: 16_384 }],
  ['a factor of the right size', { p: 1024 }],
  ['the private exponent', { d: 8192 }],
  ['an exponent of a factor', { dq: 1024 }],
  ['the coefficient', { qi: 8192 }],
])('an RSA key with another number for %s is refused', (_name, changes) => {
  // Since OpenSSL 3.5, some are not read at all.
  expect(() => readPrivateKey(changedRsa(proper, changes))).toThrow(
    /whose numbers do not belong together|not a valid private key/,
  );
});

it('an EC key whose number is out of range is refused', () => {
  expect(() => readPrivateKey(OUT_OF_RANGE)).toThrow('is not a valid private key in PEM');
});

it('a long text is not read for a key', () => {
  expect(() => readPrivateKey(pemOf(madeUpRsa(32_768)))).toThrow('is longer than 16384 characters');
});

it.each(COSTLY_KEYS)('a certificate with %s is costly to verify', async (_name, make) => {
  const { certificate } = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(make()) });
  expect(isCheapToVerify(new Uint8Array(certificate.rawData))).toBe(false);
});

it.each([
  ['RSA with the exponent 3', () => madeUpRsa(2048, { e: 8 })],
  ['RSA with 8192 bits', () => madeUpRsa(8192)],
  ['RSA for PSS only', () => generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).privateKey],
  ['P-521', () => ec('P-521')],
])('a certificate of others may have a key of %s', async (_name, make) => {
  const { certificate } = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(make()) });
  expect(isCheapToVerify(new Uint8Array(certificate.rawData))).toBe(true);
});

it('what is not a certificate is none, however much of one there is', async () => {
  const { certificate, certificatePem } = await issueCertificate({ subject: 'CN=a' });
  const der = new Uint8Array(certificate.rawData);
  for (let end = 0; end < der.length; end++) expect(isCheapToVerify(der.subarray(0, end))).toBe(false);
  expect(() => readCertificates('')).toThrow('is not a certificate in PEM');
  expect(() => readCertificates(`${certificatePem}\n`.repeat(17))).toThrow('contains more than 16 certificates');
  const costly = await issueCertificate({ subject: 'CN=b', publicKey: spkiOf(madeUpRsa(16_384)) });
  expect(() => readCertificates(certificatePem + costly.certificatePem)).toThrow(
    'certificate 2 has an RSA key with 16384',
  );
});

it('a certificate needs its own key', async () => {
  const [one, other] = [await issueCertificate({ subject: 'CN=a' }), await issueCertificate({ subject: 'CN=b' })];
  expect(() => readKeyPair(one.certificatePem, other.privateKeyPem)).toThrow(
    'the private key is not that of the first certificate',
  );
});

it('a chain with a signature by SHA-1 is refused, but for that of its root', async () => {
  const root = await issueCertificate({ subject: 'CN=root', ca: true, hash: 'SHA-1' });
  const ca = await issueCertificate({ subject: 'CN=ca', ca: true, issuer: root });
  const sound = await issueCertificate({ subject: 'CN=a', names: ['a.test'], issuer: ca });
  const old = await issueCertificate({ subject: 'CN=a', names: ['a.test'], issuer: ca, hash: 'SHA-1' });
  const chain = (...issued: { certificatePem: string }[]) =>
    issued.map(({ certificatePem }) => certificatePem).join('');
  expect(() => requireSoundSignatures(chain(sound, ca, root))).not.toThrow();
  expect(() => requireSoundSignatures(chain(old, ca))).toThrow('the certificate 1 is signed with');
  expect(() => requireSoundSignatures(chain(old))).toThrow(
    'the certificate is signed with an algorithm that clients refuse',
  );
});
