import { raw } from 'express';
import { DeadlineExceeded, withDeadline } from '../../lib/deadline.ts';
import type { ApiError } from '../../lib/errors.ts';
import type { RoutedRequest } from '../../lib/http-router.ts';
import { refuse } from './refuse.ts';
import type { Handler } from './router.ts';

/** Settings for reading bodies. */
export interface BodyLimits {
  maxBytes: number;
  /** Milliseconds until the whole body must have arrived. */
  timeoutMs: number;
}

/**
 * Reads a JSON object from the body into `req.body`; an empty body is `{}`.
 *
 * Not `express.json()`: official clients declare JSON on requests without a body as well, and each way of failing has
 * a code of its own.
 */
export function jsonBody({ maxBytes, timeoutMs }: BodyLimits): Handler {
  // It works with Node's own requests and responses.
  const read = raw({ type: () => true, limit: maxBytes }) as unknown as Handler;
  return async (req, res, next) => {
    const received = new Promise<void>((resolve, reject) => {
      read(req, res, (error) => (error ? reject(error) : resolve()));
    });
    try {
      await withDeadline(received, 'the body of a request', timeoutMs);
    } catch (cause) {
      // What is still to come of the body would be taken for the next request.
      res.shouldKeepAlive = false;
      throw unread(cause, { maxBytes, timeoutMs });
    }
    const bytes: unknown = req.body;
    req.body = Buffer.isBuffer(bytes) && bytes.length > 0 ? parseObject(req, bytes) : {};
    next();
  };
}

/** What to say of a body that could not be read; Express names its own reasons in `type`. */
function unread(cause: unknown, { maxBytes, timeoutMs }: BodyLimits): ApiError {
  const reason = cause instanceof Error && 'type' in cause ? cause.type : null;
  if (reason === 'encoding.unsupported') {
    return refuse(415, 210, 'The content encoding is not supported; send the body as it is, or with gzip.', { cause });
  }
  const why =
    cause instanceof DeadlineExceeded
      ? `it did not arrive within ${timeoutMs / 1000} s`
      : reason === 'entity.too.large'
        ? `it may have ${maxBytes} bytes`
        : `it ${reason === 'request.aborted' ? 'broke off' : 'is not encoded as its headers say'}`;
  return refuse(400, 212, `The body could not be read in full: ${why}.`, { cause });
}

function parseObject(req: RoutedRequest, bytes: Buffer): unknown {
  requireJson(req.headers['content-type']);
  const value = parseJson(bytes);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw refuse(400, 213, 'The body must be a JSON object.');
}

function parseJson(bytes: Buffer): unknown {
  let text: string;
  let value: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    value = JSON.parse(text);
  } catch (cause) {
    throw refuse(400, 213, 'The body is not valid JSON in UTF-8.', { cause });
  }
  // Only escapes can stand for the characters, and most bodies have none.
  if (/\\u|__proto__/.test(text) && holdsUnstorable(value)) {
    throw refuse(400, 213, 'The body holds a NUL character, half of a surrogate pair or a member called __proto__.');
  }
  return value;
}

/** What the database would cut off or replace, and the name that schemas leave out: better refused than changed. */
function holdsUnstorable(root: unknown): boolean {
  // A stack of our own: a body may be nested deeper than calls may be.
  const rest = [root];
  while (rest.length > 0) {
    const value = rest.pop();
    if (typeof value === 'string' && /\0|\p{Surrogate}/u.test(value)) return true;
    if (typeof value !== 'object' || value === null) continue;
    if (Object.hasOwn(value, '__proto__')) return true;
    for (const [key, member] of Object.entries(value)) rest.push(key, member);
  }
  return false;
}

function requireJson(contentType: string | undefined): void {
  if (contentType === undefined) throw refuse(400, 216, 'Send Content-Type: application/json with a body.');
  const [type = '', ...parameters] = contentType
    .toLowerCase()
    .split(';')
    .map((part) => part.trim());
  const charset = parameters.find((parameter) => parameter.startsWith('charset='))?.slice('charset='.length);
  const isUtf8 = charset === undefined || /^"?utf-?8"?$/.test(charset);
  if (type === 'application/json' && isUtf8) return;
  throw refuse(415, 210, 'The content type is not supported; send Content-Type: application/json.');
}
