import { createHash, createHmac, createPublicKey, type KeyObject, sign } from 'node:crypto';

/** The public half of a key, with the members that its thumbprint covers, in their order (RFC 7638). */
export function publicJwk(key: KeyObject): Record<string, string> {
  const { crv, e, kty, n, x, y } = createPublicKey(key).export({ format: 'jwk' });
  const members = kty === 'EC' ? { crv, kty, x, y } : kty === 'OKP' ? { crv, kty, x } : { e, kty, n };
  return Object.fromEntries(Object.entries(members).map(([name, value]) => [name, String(value)]));
}

export function thumbprint(key: KeyObject): string {
  return createHash('sha256')
    .update(JSON.stringify(publicJwk(key)))
    .digest('base64url');
}

/** A request's body, or a part of one (RFC 8555, section 6.2). */
export interface SignedBody {
  readonly protected: string;
  readonly payload: string;
  readonly signature: string;
}

/** @param payload null: an empty one, which makes the request a POST-as-GET */
export function signedWith(key: KeyObject, header: object, payload: object | null): SignedBody {
  const { alg, hash } = algorithmOf(key);
  return assemble({ alg, ...header }, payload, (text) => sign(hash, text, { key, dsaEncoding: 'ieee-p1363' }));
}

/** Binds an account's key to a customer's account (RFC 8555, section 7.3.4). @param hmacKey in base64url */
export function boundTo({ kid, hmacKey }: { kid: string; hmacKey: string }, url: string, key: KeyObject): SignedBody {
  return assemble({ alg: 'HS256', kid, url }, publicJwk(key), (text) =>
    createHmac('sha256', Buffer.from(hmacKey, 'base64url')).update(text).digest(),
  );
}

function assemble(header: object, payload: object | null, seal: (text: Buffer) => Buffer): SignedBody {
  const [head, body] = [encoded(header), payload === null ? '' : encoded(payload)];
  const signature = seal(Buffer.from(`${head}.${body}`)).toString('base64url');
  return { protected: head, payload: body, signature };
}

function encoded(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}

function algorithmOf({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): { alg: string; hash: string | null } {
  if (asymmetricKeyType === 'ed25519') return { alg: 'EdDSA', hash: null };
  if (asymmetricKeyType !== 'ec') return { alg: 'RS256', hash: 'sha256' };
  return asymmetricKeyDetails?.namedCurve === 'secp384r1'
    ? { alg: 'ES384', hash: 'sha384' }
    : { alg: 'ES256', hash: 'sha256' };
}
