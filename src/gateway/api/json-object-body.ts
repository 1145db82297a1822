import { raw } from 'express';
import type { ApiError } from '../../lib/errors.ts';
import { trimSpace } from '../../lib/http/trim-space.ts';
import { DeadlineExceeded, withDeadline } from '../../lib/time/deadline.ts';
import type { Handler } from './handler.ts';
import { refuse } from './refuse.ts';

export interface BodyLimits {
  maxBytes: number;
  /** Milliseconds until the whole body must have arrived. */
  timeoutMs: number;
}

/**
 * Parses the body into `req.body`, which must be a JSON object; an empty body becomes `{}`.
 *
 * Not `express.json()`: official clients declare JSON even without a body, and each failure has its own error code.
 */
export function jsonBody({ maxBytes, timeoutMs }: BodyLimits): Handler {
  const read = raw({ type: () => true, limit: maxBytes });
  return async (req, res, next) => {
    const received = new Promise<void>((resolve, reject) => {
      read(req, res, (error: unknown) => (error ? reject(error) : resolve()));
    });
    try {
      await withDeadline(received, 'the body of a request', timeoutMs);
    } catch (cause) {
      // The rest of the body would be parsed as the next request.
      res.shouldKeepAlive = false;
      throw unreadable(cause, { maxBytes, timeoutMs });
    }
    const bytes: unknown = req.body;
    req.body = Buffer.isBuffer(bytes) && bytes.length > 0 ? parseObject(req.headers['content-type'], bytes) : {};
    next();
  };
}

/** The error for a body that could not be read; Express names its own reasons in `type`. */
function unreadable(cause: unknown, { maxBytes, timeoutMs }: BodyLimits): ApiError {
  const reason = cause instanceof Error && 'type' in cause ? cause.type : null;
  if (reason === 'encoding.unsupported') {
    return refuse(415, 210, 'content encoding not supported; send the body uncompressed or with gzip', { cause });
  }
  const why =
    cause instanceof DeadlineExceeded
      ? `it did not arrive within ${timeoutMs / 1000} s`
      : reason === 'entity.too.large'
        ? `it is larger than ${maxBytes} bytes`
        : reason === 'request.aborted'
          ? 'the connection was closed'
          : 'it is not encoded as its headers say';
  return refuse(400, 212, `cannot read the body: ${why}`, { cause });
}

function parseObject(contentType: string | undefined, bytes: Buffer): unknown {
  requireJson(contentType);
  const value = parseJson(bytes);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw refuse(400, 213, 'the body must be a JSON object');
}

function parseJson(bytes: Buffer): unknown {
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

/** Whether a value holds text that the database would truncate or replace, or the name that schemas drop. */
function holdsUnstorable(root: unknown): boolean {
  // An explicit stack: bodies may be nested deeper than the call stack.
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
