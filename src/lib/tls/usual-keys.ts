import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';

/*
 * What keys may cost the gateway. OpenSSL computes with any key that it can read: one signature with an RSA key of 32,768 bits
 * takes ten seconds, and checking one with a curve of 571 bits takes twenty times as long as with P-256. Keys are read from
 * their DER: Node's details of a key can be wrong, and asking it for an elliptic curve's key that is out of range ends the
 * process.
 */

/** Certificates of one chain; a real one has four at most. */
export const MAX_CHAIN = 16;
/** CAs whose signature on a client's certificate one endpoint accepts. */
export const MAX_AUTHORITIES = 50;
/** Characters of a private key in PEM; one of RSA with 4,096 bits has 3,300. */
const MAX_KEY_TEXT = 16_384;

const USUAL = 'use RSA with 2048 to 4096 bits and the exponent 65537, ECDSA with P-256 or P-384, or Ed25519';
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** What algorithms and curves are called in messages, by the hexadecimal digits of their identifiers. */
const NAMES: Readonly<Record<string, string>> = {
  '2a864886f70d010101': 'RSA',
  '2a864886f70d01010a': 'RSASSA-PSS',
  '2a8648ce380401': 'DSA',
  '2a8648ce3d030107': 'P-256',
  '2b81040022': 'P-384',
  '2b81040023': 'P-521',
  '2b6570': 'Ed25519',
  '2b6571': 'Ed448',
};
const EC = '2a8648ce3d0201';
/** ECDSA and EdDSA, which cost the same with each key. */
const USUAL_KINDS: ReadonlySet<string> = new Set(['P-256', 'P-384', 'Ed25519']);
const CHEAP_KINDS: ReadonlySet<string> = new Set([...USUAL_KINDS, 'P-521', 'Ed448']);
const USUAL_EXPONENT = 65_537n;

/** What work with a key costs depends on. */
interface KeyFacts {
  /** Its algorithm or curve; empty when unknown, or a curve of its own, or anything but a key. */
  readonly kind: string;
  /** Of an RSA key; null for others. */
  readonly rsa: { readonly bits: number; readonly exponent: bigint } | null;
}

/**
 * Parses PEM certificates that the gateway presents, or trusts.
 *
 * @param text what is not a PEM block of a certificate is ignored
 * @param name of the only one in messages, with a space behind it; several are numbered
 * @throws {Error} what is wrong with them: there is none or there are too many, one is malformed, or has an unusual key
 */
export function readCertificates(text: string, max = MAX_CHAIN, name = ''): X509Certificate[] {
  const blocks = text.match(CERTIFICATE) ?? [];
  if (blocks.length === 0) throw new Error(`${name}is not a certificate in PEM`);
  if (blocks.length > max) throw new Error(`${name}contains more than ${max} certificates`);
  return blocks.map((block, at) => {
    const which = blocks.length === 1 ? name : `certificate ${at + 1} `;
    const certificate = parsedCertificate(block);
    if (certificate === null) throw new Error(`${which}is not a certificate in PEM`);
    const problem = certificateProblem(certificate);
    if (problem !== null) throw new Error(`${which}${problem}`);
    return certificate;
  });
}

function parsedCertificate(pem: string): X509Certificate | null {
  try {
    return new X509Certificate(pem);
  } catch {
    return null; // OpenSSL's words do not help.
  }
}

/** @returns why the gateway does not use a certificate's key, as the rest of a sentence about the certificate; null: it does */
export function certificateProblem({ raw }: X509Certificate): string | null {
  const facts = factsOf(raw);
  return isUsual(facts) ? null : `has ${described(facts)}; ${USUAL}`;
}

/** Signatures with SHA-2, and EdDSA, by the hexadecimal digits of their identifiers (RFC 4055, 5758 and 8410). */
const SIGNATURES: ReadonlySet<string> = new Set([
  ...['2a864886f70d01010b', '2a864886f70d01010c', '2a864886f70d01010d'],
  ...['2a8648ce3d040302', '2a8648ce3d040303', '2a8648ce3d040304', '2b6570', '2b6571'],
]);
const RSASSA_PSS = '2a864886f70d01010a';
const SHA_2: ReadonlySet<string> = new Set(['608648016503040201', '608648016503040202', '608648016503040203']);
/** The tag of the parameter that names the hash function; without it, that is SHA-1 (RFC 4055, section 3.1). */
const HASH = 0xa0;

/**
 * Looks at how certificates are signed, for those that clients check: versions of OpenSSL differ in what they serve, and clients
 * refuse signatures with SHA-1. That of a self-signed certificate, the root, proves nothing, and is left out.
 *
 * @returns why clients refuse a chain, as the rest of a sentence about the certificate; null: its signatures are fine
 */
export function signatureProblem(chain: readonly X509Certificate[]): string | null {
  const at = chain.findIndex((certificate) => !certificate.checkIssued(certificate) && !isSignedWell(certificate.raw));
  if (at < 0) return null;
  const which = chain.length === 1 ? 'is' : `${at + 1} is`;
  return `${which} signed with an algorithm that clients refuse, such as SHA-1: have it issued again, with SHA-256`;
}

/** Like {@link readCertificates}, for a chain that clients check. @throws {Error} also what {@link signatureProblem} says */
export function requireSoundSignatures(chain: string): void {
  const problem = signatureProblem(readCertificates(chain));
  if (problem !== null) throw new Error(`the certificate ${problem}`);
}

function isSignedWell(certificate: Uint8Array): boolean {
  const [, algorithm] = inside(inside({ content: certificate })[0]);
  const [id, parameters] = inside(algorithm);
  const name = id ? hexOf(id.content) : '';
  if (name !== RSASSA_PSS) return SIGNATURES.has(name);
  const hash = inside(inside(inside(parameters).find(({ tag }) => tag === HASH))[0])[0];
  return hash !== undefined && SHA_2.has(hexOf(hash.content));
}

/**
 * Parses a private key that the gateway signs with.
 *
 * @param pem PEM, without a passphrase
 * @param name as for {@link readCertificates}
 * @throws {Error} what is wrong with it, without a cause, which could quote the key
 */
export function readPrivateKey(pem: string, name = ''): KeyObject {
  if (pem.length > MAX_KEY_TEXT) throw new Error(`${name}is longer than ${MAX_KEY_TEXT} characters; ${USUAL}`);
  let key: KeyObject;
  let der: Buffer;
  try {
    key = createPrivateKey(pem);
    // Fails for a number outside the curve's range, which Node must not be asked about.
    der = key.export({ type: 'pkcs8', format: 'der' });
  } catch {
    throw new Error(`${name}is not a valid private key in PEM without a passphrase; ${USUAL}`);
  }
  const facts = privateFacts(der);
  if (!isUsual(facts)) throw new Error(`${name}is ${described(facts)}; ${USUAL}`);
  if (facts.rsa !== null && !isSound(facts.numbers)) {
    throw new Error(`${name}is an RSA key whose numbers do not belong together; create a new one`);
  }
  return key;
}

/**
 * Parses a certificate chain and its private key.
 *
 * @returns both as PEM again, so that OpenSSL reads what was checked, and nothing else in the texts
 * @throws {Error} what is wrong with them, without quoting the key
 */
export function readKeyPair(certificates: string, privateKey: string): { cert: string; key: string } {
  const chain = readCertificates(certificates, MAX_CHAIN, 'the certificate ');
  const key = readPrivateKey(privateKey, 'the private key ');
  if (chain[0]?.checkPrivateKey(key) !== true) throw new Error('the private key is not that of the first certificate');
  return { cert: chain.join(''), key: key.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

/** As {@link certificateProblem}, for a public key (SubjectPublicKeyInfo of RFC 5280, section 4.1). */
export function publicKeyProblem(der: Uint8Array): string | null {
  const facts = publicFacts(inside({ content: der })[0]);
  return isUsual(facts) ? null : `has ${described(facts)}; ${USUAL}`;
}

/**
 * Whether signatures with a certificate's key take little time to check: for certificates that others present, whose keys are
 * theirs to choose. Costs some microseconds.
 */
export function isCheapToVerify(certificate: Uint8Array): boolean {
  return isCheap(factsOf(certificate));
}

function isUsual({ kind, rsa }: KeyFacts): boolean {
  if (rsa === null) return USUAL_KINDS.has(kind);
  return kind === 'RSA' && rsa.bits >= 2048 && rsa.bits <= 4096 && rsa.exponent === USUAL_EXPONENT;
}

function isCheap({ kind, rsa }: KeyFacts): boolean {
  return rsa === null ? CHEAP_KINDS.has(kind) : rsa.bits <= 8192 && rsa.exponent <= USUAL_EXPONENT;
}

function described({ kind, rsa }: KeyFacts): string {
  if (kind === '') return 'a key of an unknown kind';
  if (rsa === null || kind !== 'RSA') return `a key for ${kind}`;
  const exponent = rsa.exponent === USUAL_EXPONENT ? '' : ' and an unusual exponent';
  return `an RSA key with ${rsa.bits} bits${exponent}`;
}

/**
 * Whether the numbers of an RSA key belong together: signing takes longer with larger ones, and when the result is wrong,
 * OpenSSL repeats it in a slower way. More than nine have more than two primes.
 */
function isSound(numbers: readonly bigint[]): boolean {
  const [version, n = 0n, e = 0n, d = 0n, p = 0n, q = 0n, dp = 0n, dq = 0n, qi = 0n] = numbers;
  if (version !== 0n || numbers.length !== 9 || p * q !== n || bitsOf(p) !== bitsOf(q)) return false;
  if (p < 2n || q < 2n || d >= n || dp >= p || dq >= q || qi >= p) return false;
  return (e * dp) % (p - 1n) === 1n && (e * dq) % (q - 1n) === 1n && (qi * q) % p === 1n;
}

/** Of a certificate's public key (RFC 5280, section 4.1). */
function factsOf(certificate: Uint8Array): KeyFacts {
  const [signed] = inside(inside({ content: certificate })[0]);
  const parts = inside(signed);
  // Perhaps the version, then serial number, algorithm, issuer, validity and subject.
  return publicFacts(parts[parts[0]?.tag === VERSION ? 6 : 5]);
}

function publicFacts(info: Element | undefined): KeyFacts {
  const [algorithm, key] = inside(info);
  const kind = kindOf(algorithm);
  if (!kind.startsWith('RSA')) return { kind, rsa: null };
  const [n, e] = inside(inside({ content: key?.content.subarray(1) ?? new Uint8Array() })[0]);
  return n && e ? { kind, rsa: rsaOf(unsigned(n.content), unsigned(e.content)) } : { kind: '', rsa: null };
}

/** Of a private key in PKCS #8 (RFC 5958), with the numbers of one for RSA (RFC 8017, appendix A.1.2). */
function privateFacts(der: Uint8Array): KeyFacts & { readonly numbers: readonly bigint[] } {
  const [, algorithm, key] = inside(inside({ content: der })[0]);
  const kind = kindOf(algorithm);
  if (!key || !kind.startsWith('RSA')) return { kind, rsa: null, numbers: [] };
  const numbers = inside(inside(key)[0]).map(({ content }) => unsigned(content));
  return { kind, rsa: rsaOf(numbers[1], numbers[2]), numbers };
}

function rsaOf(n = 0n, exponent = 0n): NonNullable<KeyFacts['rsa']> {
  return { bits: bitsOf(n), exponent };
}

/** The name of an algorithm or, for elliptic curves, of the curve; empty when it is none of those known. */
function kindOf(algorithm: Element | undefined): string {
  const [id, curve] = inside(algorithm).map(({ tag, content }) => (tag === IDENTIFIER ? hexOf(content) : ''));
  return NAMES[(id === EC ? curve : id) ?? ''] ?? '';
}

const [IDENTIFIER, VERSION] = [0x06, 0xa0];

/** A value in DER (ITU-T X.690, section 10). */
interface Element {
  readonly tag: number;
  readonly content: Uint8Array;
}

/** The values that follow each other in the content of one; none when anything in there is not DER. */
function inside(element: Pick<Element, 'content'> | undefined): Element[] {
  const found: Element[] = [];
  const { content: der } = element ?? { content: new Uint8Array() };
  for (let at = 0; at < der.length; ) {
    const [tag = 0, first = 0x80] = der.subarray(at, at + 2);
    const lengthBytes = first < 0x80 ? 0 : first & 0x7f;
    // No length, or one of gigabytes; an identifier of several bytes.
    if (first === 0x80 || lengthBytes > 3 || (tag & 0x1f) === 0x1f) return [];
    const start = at + 2 + lengthBytes;
    const length = lengthBytes === 0 ? first : Number(unsigned(der.subarray(at + 2, start)));
    at = start + length;
    if (at > der.length) return [];
    found.push({ tag, content: der.subarray(start, at) });
  }
  return found;
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

function unsigned(bytes: Uint8Array): bigint {
  return BigInt(`0x0${hexOf(bytes)}`);
}

function bitsOf(number: bigint): number {
  const digits = number.toString(16);
  return digits.length * 4 - Math.clz32(Number(`0x${digits[0]}`)) + 28;
}
