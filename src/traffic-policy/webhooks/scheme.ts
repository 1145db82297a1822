import {
  type Hash,
  hmac,
  isEqual,
  isRecent,
  NO_SIGNATURE,
  type TimeFormat,
  TOO_OLD,
  type Verify,
  verdict,
  type Webhook,
  WRONG_SIGNATURE,
} from './webhook.ts';

/** How a provider signs with a shared secret. */
export interface Scheme {
  /** Headers with signatures; one that matches is enough. */
  readonly headers: readonly string[];
  /** What precedes the signature in its header, such as `sha256=`. */
  readonly prefix?: string;
  /** For headers such as `t=1,v1=ab`: the name of the signature. It may stand there more than once. */
  readonly field?: string;
  /** SHA-256 by default. */
  readonly hash?: Hash;
  readonly encoding: 'hex' | 'base64';
  /** Where the time of the signature stands: a header, or a field of the signature's header. */
  readonly time?: { readonly header: string } | { readonly field: string };
  readonly timeFormat?: TimeFormat;
  readonly toleranceS?: number;
  /** What is signed, the body by default; null when a part of the body is not. */
  readonly signed?: (webhook: Webhook, time: string) => readonly (string | Buffer)[] | null;
  /** The key that the secret stands for; its bytes by default. */
  readonly key?: (secret: string) => Buffer;
}

const MAX_PARTS = 20;

/** The values of one name in a list such as `t=1,v1=ab`. */
export function fieldsOf(header: string, name: string): string[] {
  const parts = header.split(/[\s,]+/, MAX_PARTS);
  return parts.filter((part) => part.startsWith(`${name}=`)).map((part) => part.slice(name.length + 1));
}

/** Verifies what a scheme describes. */
export function signedBy(scheme: Scheme): Verify {
  const { hash = 'sha256', encoding, timeFormat, toleranceS, signed = ({ body }) => [body], key } = scheme;
  return (webhook) => {
    const signatures = signaturesOf(scheme, webhook);
    if (signatures.length === 0) return NO_SIGNATURE;
    const time = timeOf(scheme, webhook);
    if (time === '') return NO_SIGNATURE;
    if (time !== null && !isRecent(time, webhook, timeFormat, toleranceS)) return TOO_OLD;
    const parts = signed(webhook, time ?? '');
    if (parts === null) return WRONG_SIGNATURE;
    const expected = hmac(hash, key ? key(webhook.secret) : webhook.secret, ...parts);
    return verdict(signatures.some((signature) => isEqual(Buffer.from(signature, encoding), expected)));
  };
}

function signaturesOf({ headers, prefix = '', field }: Scheme, { header }: Webhook): string[] {
  const values = headers.map((name) => header(name)).filter((value) => value !== '');
  if (field !== undefined) return values.flatMap((value) => fieldsOf(value, field));
  return values.filter((value) => value.startsWith(prefix)).map((value) => value.slice(prefix.length));
}

/** @returns null when the scheme has no time, the empty text when the webhook has none */
function timeOf({ headers, time }: Scheme, { header }: Webhook): string | null {
  if (time === undefined) return null;
  if ('header' in time) return header(time.header);
  return headers.flatMap((name) => fieldsOf(header(name), time.field))[0] ?? '';
}
