import { type ErrorRequestHandler, type Request, type RequestHandler, type Response, raw } from 'express';
import { ApiError, errorBody } from '../errors.ts';
import { DeadlineExceeded, withDeadline } from '../time/deadline.ts';

/** Why a body could not be read. */
export type BodyProblem = 'too large' | 'too slow' | 'cut off' | 'wrong encoding' | 'malformed';

/** How an API reads the bodies of requests. */
export interface BodyRules {
  maxBytes: number;
  /** Milliseconds until the whole body must have arrived; left out: as long as the server waits for a request. */
  timeoutMs?: number;
  /** The value for `req.body`; there are no bytes without a body. */
  parse(bytes: Buffer, req: Request): unknown;
  /** The API's error for a body that could not be read. */
  unreadable(problem: BodyProblem, cause: unknown): ApiError;
}

/** So much of a body that is too large is still read: a client that is cut off while it sends may miss the answer. */
const MAX_READ = 4 * 1024 * 1024;

/** What Express names its reasons in the `type` of its errors. */
const PROBLEMS: Readonly<Record<string, BodyProblem>> = {
  'encoding.unsupported': 'wrong encoding',
  'entity.too.large': 'too large',
  'request.aborted': 'cut off',
};

/** Reads a body of any content type, and parses it into `req.body`. */
export function bodyParser({ maxBytes, timeoutMs, parse, unreadable }: BodyRules): RequestHandler {
  const read = raw({ type: () => true, limit: maxBytes });
  return async (req, res, next) => {
    const received = new Promise<void>((resolve, reject) => {
      // Express reports a body that is too large when it has read all of it, which may never be.
      let bytes = 0;
      const count = (piece: Buffer) => {
        bytes += piece.length;
        if (bytes <= MAX_READ) return;
        req.off('data', count).pause();
        reject(Object.assign(new Error(`more than ${MAX_READ} bytes`), { type: 'entity.too.large' }));
      };
      req.on('data', count);
      read(req, res, (error: unknown) => (error ? reject(error) : resolve()));
    });
    try {
      await (timeoutMs === undefined ? received : withDeadline(received, 'the body of a request', timeoutMs));
    } catch (cause) {
      // The rest of the body would be parsed as the next request.
      res.shouldKeepAlive = false;
      throw unreadable(problemOf(cause), cause);
    }
    const bytes: unknown = req.body;
    req.body = parse(Buffer.isBuffer(bytes) ? bytes : Buffer.alloc(0), req);
    next();
  };
}

function problemOf(cause: unknown): BodyProblem {
  if (cause instanceof DeadlineExceeded) return 'too slow';
  return (cause instanceof Error && 'type' in cause && PROBLEMS[String(cause.type)]) || 'malformed';
}

/** How an API answers what its handlers throw. */
export interface ErrorAnswers {
  /** The API's own error for one that is none; null for a bug. */
  translate(error: unknown): ApiError | null;
  /** @param known null for a bug */
  log(error: unknown, known: ApiError | null, req: Request, res: Response): void;
  /** The answer to a bug, which reveals nothing about it. */
  internal(): ApiError;
  /** Details that every answer has. */
  details?(res: Response): Record<string, string>;
}

/** Turns errors of handlers into answers. */
export function answerErrors({ translate, log, internal, details }: ErrorAnswers): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const known = error instanceof ApiError ? error : translate(error);
    log(error, known, req, res);
    if (res.headersSent) return void res.destroy();
    const answer = known ?? internal();
    if (answer.retryAfter !== null) res.set('Retry-After', String(answer.retryAfter));
    // What follows of the body is not read.
    if (answer.status === 413) res.set('Connection', 'close');
    const body = errorBody(answer);
    res.status(answer.status).json(details ? { ...body, details: { ...body.details, ...details(res) } } : body);
  };
}
