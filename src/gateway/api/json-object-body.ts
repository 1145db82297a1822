import type { RequestHandler } from 'express';
import type { ApiError } from '../../lib/errors.ts';
import { type BodyProblem, type BodyRules, bodyParser } from '../../lib/http/api-middleware.ts';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { refuse } from './request.ts';

export type BodyLimits = Required<Pick<BodyRules, 'maxBytes' | 'timeoutMs'>>;

/**
 * Parses the body into `req.body`, which must be a JSON object; `{}` if it is empty. Not `express.json()`: official clients
 * declare JSON even without a body, and each failure has its own error code.
 */
export function jsonObjectBody(limits: BodyLimits): RequestHandler {
  return bodyParser({
    ...limits,
    parse: (bytes, { headers }) => (bytes.length > 0 ? parseObject(headers['content-type'], bytes) : {}),
    unreadable: (problem, cause) => unreadable(problem, cause, limits),
  });
}

function unreadable(problem: BodyProblem, cause: unknown, { maxBytes, timeoutMs }: BodyLimits): ApiError {
  if (problem === 'wrong encoding') {
    return refuse(415, 210, 'content encoding not supported; send the body uncompressed or with gzip', { cause });
  }
  const why = {
    'too slow': `it did not arrive within ${timeoutMs / 1000} s`,
    'too large': `it is larger than ${maxBytes} bytes`,
    'cut off': 'the connection was closed',
    malformed: 'it is not encoded as its headers say',
  }[problem];
  return refuse(400, 212, `cannot read the body: ${why}`, { cause });
}

function parseObject(contentType: string | undefined, bytes: Buffer): unknown {
  requireJson(contentType);
  const value = parseStorableJson(bytes);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw refuse(400, 213, 'the body must be a JSON object');
}

/** @throws {ApiError} */
export function parseStorableJson(bytes: Buffer): unknown {
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (cause) {
    throw refuse(400, 213, 'the body is not valid JSON in UTF-8', { cause });
  }
  // Only escapes can encode these characters, and most bodies have none.
  if (/\\u|__proto__/.test(text) && holdsUnstorable(value)) {
    throw refuse(400, 213, 'the body holds a NUL character, an unpaired surrogate or a member named __proto__');
  }
  return value;
}

const UNSTORABLE = /[\0\p{Surrogate}]/u;

/** Whether a value holds text that the database would truncate or replace, or the name that schemas drop. */
function holdsUnstorable(root: unknown): boolean {
  // An explicit stack: bodies may be nested deeper than the call stack.
  const rest: object[] = [];
  const isBad = (value: unknown) => {
    if (typeof value === 'object' && value !== null) rest.push(value);
    return typeof value === 'string' && UNSTORABLE.test(value);
  };
  if (isBad(root)) return true;
  for (let value = rest.pop(); value !== undefined; value = rest.pop()) {
    const names = Array.isArray(value) ? [] : Object.keys(value);
    if (names.some((name) => name === '__proto__' || isBad(name)) || Object.values(value).some(isBad)) return true;
  }
  return false;
}

function requireJson(contentType: string | undefined): void {
  if (contentType === undefined) throw refuse(400, 216, 'no content type; send Content-Type: application/json');
  const [type = '', ...parameters] = contentType
    .toLowerCase()
    .split(';')
    .map((part) => trimSpace(part));
  const charset = parameters.find((parameter) => parameter.startsWith('charset='))?.slice('charset='.length);
  const isUtf8 = charset === undefined || /^"?utf-?8"?$/.test(charset);
  if (type === 'application/json' && isUtf8) return;
  throw refuse(415, 210, 'content type not supported; send Content-Type: application/json');
}
