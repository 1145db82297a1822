import type { NextFunction, Request, Response } from 'express';

/** What the handlers of one request share, in `res.locals`. */
export interface RequestLocals {
  operationId: string;
  /** Set once the API key has been verified. */
  apiKeyId?: string;
}

export type ApiResponse = Response<unknown, RequestLocals>;
export type Handler = (req: Request, res: ApiResponse, next: NextFunction) => unknown;
export type ErrorHandler = (error: unknown, ...args: Parameters<Handler>) => void;
