import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';

type Member = 'n' | 'e' | 'd' | 'p' | 'q' | 'dp' | 'dq' | 'qi';

/** A number with exactly so many bits, odd, as a JSON Web Key has it. */
function number(bits: number): string {
  const bytes = randomBytes(bits / 8);
  bytes.writeUInt8(bytes.readUInt8(0) | 0x80);
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 1) | 1, bytes.length - 1);
  return bytes.toString('base64url');
}

/** A private RSA key whose numbers are made up, in a moment. */
export function madeUpRsa(bits: number, others: Partial<Record<Member, number>> = {}): KeyObject {
  const key: Record<string, string> = { kty: 'RSA', e: 'AQAB' };
  for (const member of ['n', 'd'] as const) key[member] = number(bits);
  for (const member of ['p', 'q', 'dp', 'dq', 'qi'] as const) key[member] = number(bits / 2);
  for (const [member, size] of Object.entries(others)) key[member] = number(size);
  // Node.js 24 checks what comes as a JSON Web Key.
  return createPrivateKey({ key: pkcs1(key), format: 'der', type: 'pkcs1' });
}

/** An RSA key in PEM (PKCS #1), with some of its numbers replaced. */
export function changedRsa(proper: KeyObject, changes: Partial<Record<Member, number>>): string {
  const key: Record<string, unknown> = { ...proper.export({ format: 'jwk' }) };
  for (const [member, size] of Object.entries(changes)) key[member] = number(size);
  const text = pkcs1(key).toString('base64').replace(/.{64}/g, '$&\n');
  return `-----BEGIN RSA PRIVATE KEY-----\n${text}\n-----END RSA PRIVATE KEY-----\n`;
}

/** In DER: https://www.rfc-editor.org/rfc/rfc8017#appendix-A.1.2. */
function pkcs1(key: Record<string, unknown>): Buffer {
  const numbers = (['n', 'e', 'd', 'p', 'q', 'dp', 'dq', 'qi'] as const).map((member) =>
    tagged(0x02, Buffer.concat([Buffer.alloc(1), Buffer.from(String(key[member]), 'base64url')])),
  );
  return tagged(0x30, Buffer.concat([tagged(0x02, Buffer.alloc(1)), ...numbers]));
}

/** A value in DER. */
function tagged(tag: number, given: Buffer): Buffer {
  // Integers have no more zeros in front than they need.
  const isPadded = tag === 0x02 && given.length > 1 && given[0] === 0 && Number(given[1]) < 0x80;
  const content = isPadded ? given.subarray(1) : given;
  const { length } = content;
  const size = Buffer.alloc(4);
  size.writeUInt32BE(length);
  const bytes = size.subarray(length < 0x100 ? 3 : length < 0x10000 ? 2 : 1);
  const header = length < 0x80 ? [tag, length] : [tag, 0x80 | bytes.length, ...bytes];
  return Buffer.concat([Buffer.from(header), content]);
}

/** SubjectPublicKeyInfo in DER of the public part. */
export function spkiOf(key: KeyObject): Uint8Array<ArrayBuffer> {
  return new Uint8Array(createPublicKey(key).export({ type: 'spki', format: 'der' }));
}

export function pemOf(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function ecKey(namedCurve: string, paramEncoding: 'named' | 'explicit' = 'named'): KeyObject {
  return generateKeyPairSync('ec', { namedCurve, paramEncoding }).privateKey;
}

/** Keys with which checking a signature takes long. */
export const COSTLY_KEYS: readonly [name: string, make: () => KeyObject][] = [
  ['RSA with 16384 bits', () => madeUpRsa(16_384)],
  ['RSA with 3072 bits and an exponent of 3072', () => madeUpRsa(3072, { e: 3072 })],
  ['RSA with an exponent of 32 bits', () => madeUpRsa(2048, { e: 32 })],
  ['a binary curve', () => ecKey('sect571r1')],
  ['a Koblitz curve', () => ecKey('sect571k1')],
  ['a Brainpool curve', () => ecKey('brainpoolP512r1')],
  ['a curve with explicit parameters', () => ecKey('P-256', 'explicit')],
];

/** An EC key in the form of SEC 1 whose number is out of the range of P-256: asking Node about it ends the process. */
export const OUT_OF_RANGE = (() => {
  const body = Buffer.concat([
    Buffer.from([0x02, 1, 1, 0x04, 33]),
    Buffer.alloc(33, 0x7f),
    Buffer.from('a00a06082a8648ce3d030107', 'hex'),
  ]);
  const der = Buffer.concat([Buffer.from([0x30, body.length]), body]);
  return `-----BEGIN EC PRIVATE KEY-----\n${der.toString('base64')}\n-----END EC PRIVATE KEY-----\n`;
})();
