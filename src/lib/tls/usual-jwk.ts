/** The exponent of every RSA key that is made today. A long one makes checking a signature take a hundred times as long. */
const EXPONENT = 65_537n;
const [MIN_BITS, MAX_BITS] = [2_048, 4_096];
const UNUSUAL_RSA = `an RSA key must have ${MIN_BITS} to ${MAX_BITS} bits and the exponent ${EXPONENT}`;

/** ES512 needs the last one. */
const CURVES: ReadonlySet<unknown> = new Set(['P-256', 'P-384', 'P-521']);
const UNUSUAL_CURVE = 'the curve must be P-256, P-384 or P-521';
const UNUSUAL_KIND = 'the key must be for RSA, ECDSA or Ed25519';

/**
 * Whether checking a signature with a JSON Web Key (RFC 7518, section 6) takes at most a few milliseconds. The publisher of a
 * key chooses what that costs the gateway. The key is not imported for that: even this takes milliseconds for some curves.
 *
 * @returns why it may take longer; null: it does not
 */
export function unusualJwk({ kty, n, e, crv }: Readonly<Record<string, unknown>>): string | null {
  if (kty === 'RSA') return isUsualRsa(numberIn(n), numberIn(e)) ? null : UNUSUAL_RSA;
  if (kty === 'EC') return CURVES.has(crv) ? null : UNUSUAL_CURVE;
  return kty === 'OKP' && crv === 'Ed25519' ? null : UNUSUAL_KIND;
}

function isUsualRsa(modulus: bigint, exponent: bigint): boolean {
  const bits = modulus.toString(2).length;
  return bits >= MIN_BITS && bits <= MAX_BITS && exponent === EXPONENT;
}

/** Characters of a number in Base64url that may be usual, with some zeros in front. */
const MAX_TEXT = 1_024;

/** Zero for what is no number, or a far too long one. */
function numberIn(text: unknown): bigint {
  if (typeof text !== 'string' || text === '' || text.length > MAX_TEXT) return 0n;
  const hex = Buffer.from(text, 'base64url').toString('hex');
  return hex === '' ? 0n : BigInt(`0x${hex}`);
}
