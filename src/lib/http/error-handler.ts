import type { ErrorRequestHandler, Request, Response } from 'express';
import { ApiError, errorBody } from '../errors.ts';

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
