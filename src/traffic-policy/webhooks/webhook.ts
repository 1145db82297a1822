import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';

export interface Webhook {
  readonly method: string;
  readonly url: string;
  readonly body: Buffer;
  readonly contentType: string;
  readonly secret: string;
  /** Milliseconds since 1970. */
  readonly nowMs: number;
  /** The first value of a header, by its lower-case name; empty when it is missing. */
  header(name: string): string;
  /** The key of the certificate at a URL of the provider. @throws Error when it is unavailable */
  signingKey(url: string): Promise<KeyObject>;
  /** Logs a problem that the sender does not need to know. */
  note(problem: string): void;
  /** Runs work that follows a wait, so that it is charged like the rest. */
  measured<T>(work: () => T): T;
}

/** The answer to a provider that checks who owns the endpoint, before it sends webhooks. */
export interface ChallengeAnswer {
  readonly contentType: string;
  readonly body: string;
}

/** Why a webhook is not trusted, without quoting it; null when it is genuine; what to answer to a challenge. */
export type WebhookVerdict = string | null | ChallengeAnswer;

export type Verify = (webhook: Webhook) => WebhookVerdict | Promise<WebhookVerdict>;

export const FORM = 'application/x-www-form-urlencoded';

export type Hash = 'sha1' | 'sha256' | 'sha512';

export type TimeFormat = 'seconds' | 'milliseconds' | 'date';

/** Most providers name no maximum age; most of their libraries use this one. */
const TOLERANCE_S = 5 * 60;

export const NO_SIGNATURE = 'the signature is missing';
export const WRONG_SIGNATURE = 'the signature is wrong';
export const TOO_OLD = 'it was signed too long ago, or in the future';

export const verdict = (genuine: boolean): string | null => (genuine ? null : WRONG_SIGNATURE);

export function hmac(algorithm: Hash, key: string | Buffer, ...parts: readonly (string | Buffer)[]): Buffer {
  const mac = createHmac(algorithm, key);
  for (const part of parts) mac.update(part);
  return mac.digest();
}

export function isEqual(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}

/** Compares texts of any length in constant time. */
export function isSameText(one: string, other: string): boolean {
  return isEqual(hmac('sha256', 'text', one), hmac('sha256', 'text', other));
}

export function isRecent(
  time: string,
  { nowMs }: Webhook,
  format: TimeFormat = 'seconds',
  toleranceS = TOLERANCE_S,
): boolean {
  return Math.abs(nowMs - millisecondsOf(time, format)) <= toleranceS * 1000;
}

/** NaN, which is never recent, for anything else than a time. */
function millisecondsOf(time: string, format: TimeFormat): number {
  if (format === 'date') {
    const [date, zone] = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$/.exec(time) ?? [];
    return date === undefined ? Number.NaN : Date.parse(zone === undefined ? `${date}Z` : date);
  }
  return /^\d{1,15}$/.test(time) ? Number(time) * (format === 'seconds' ? 1000 : 1) : Number.NaN;
}

/** Parsing more takes long; a provider whose webhooks are read sends a few kilobytes. */
const MAX_JSON = 128 * 1024;

/** The members of a JSON object; empty for anything else, and for a long one. */
export function jsonMembers(body: Buffer): Record<string, unknown> {
  if (body.length > MAX_JSON) return {};
  try {
    return asMembers(JSON.parse(body.toString()));
  } catch {
    return {}; // not JSON
  }
}

export function asMembers(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

export function scalarText(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

/** Sorting more would take long; providers send a few dozen. */
const MAX_PARAMETERS = 1000;

/** The parameters of a form; null when there are too many. */
export function formParameters({ body }: Webhook): [string, string][] | null {
  let count = 0;
  for (let at = body.indexOf('&'); at !== -1; at = body.indexOf('&', at + 1)) {
    count += 1;
    if (count > MAX_PARAMETERS) return null;
  }
  return [...new URLSearchParams(body.toString())];
}

/** The parameters of a form sorted by name, with names and values concatenated; null when that omits some of the body. */
export function formText(webhook: Webhook): string | null {
  if (webhook.body.length === 0) return '';
  const parameters = webhook.contentType === FORM ? formParameters(webhook) : null;
  if (parameters === null) return null;
  parameters.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
  return parameters.map(([name, value]) => name + value).join('');
}

export interface SignatureScheme {
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

export function signedBy(scheme: SignatureScheme): Verify {
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

function signaturesOf({ headers, prefix = '', field }: SignatureScheme, { header }: Webhook): string[] {
  const values = headers.map((name) => header(name)).filter((value) => value !== '');
  if (field !== undefined) return values.flatMap((value) => fieldsOf(value, field));
  return values.filter((value) => value.startsWith(prefix)).map((value) => value.slice(prefix.length));
}

/** @returns null when the scheme has no time, the empty text when the webhook has none */
function timeOf({ headers, time }: SignatureScheme, { header }: Webhook): string | null {
  if (time === undefined) return null;
  if ('header' in time) return header(time.header);
  return headers.flatMap((name) => fieldsOf(header(name), time.field))[0] ?? '';
}
