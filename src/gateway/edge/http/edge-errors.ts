import { ApiError } from '../../../lib/errors.ts';
import { StreamsExhausted } from '../../endpoints/endpoint.ts';
import { MalformedMessage } from './headers.ts';

export class ConnectionLost extends Error {
  /** @param resetCode with which an HTTP/2 upstream reset this request */
  constructor(
    cause?: Error,
    readonly resetCode?: number,
  ) {
    super('connection to the upstream lost', { cause });
    this.name = 'ConnectionLost';
  }
}

export class ResponseTimeout extends Error {
  constructor() {
    super('upstream did not answer in time');
    this.name = 'ResponseTimeout';
  }
}

/** Start of the body with which the SDK itself answers 502 when it cannot reach the upstream. */
export const DIAL_FAILURE_TEXT = 'failed to dial backend';

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

export const unknownHost = (host: string): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', `The endpoint ${host} is offline: no agent has it open.`);

export const endpointRemoved = (): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', 'The endpoint went offline before it could answer.');

export const addressRefused = (): ApiError =>
  new ApiError(403, 'ERR_NGROK_3205', 'Your IP address is not allowed to use endpoints of this gateway.');

export const upstreamUnreachable = (): ApiError =>
  new ApiError(502, 'ERR_NGROK_8012', 'The agent is online, but its upstream is unreachable.');

export const malformedRequest = (why: string): ApiError => new ApiError(400, 'ERR_NGROK_3004', `Bad request: ${why}.`);

export const headersTooLong = (): ApiError => new ApiError(431, 'ERR_NGROK_3004', 'Bad request: headers too long.');

export const requestTimeout = (): ApiError => new ApiError(408, 'ERR_NGROK_3004', 'Bad request: not received in time.');

export const unknownExpectation = (): ApiError =>
  new ApiError(417, 'ERR_NGROK_3004', 'Bad request: unsupported expectation.');

export const misdirected = (host: string): ApiError =>
  new ApiError(421, 'ERR_NGROK_3004', `Requests for ${host} need a separate connection.`);

export const internalFailure = (): ApiError =>
  new ApiError(500, 'ERR_NGROK_2300', 'The gateway failed to process the request.');

/** The error that answers a client when a request failed between the edge and the upstream. */
export function upstreamFailure(cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  const isDisplaced = cause instanceof ConnectionLost && cause.cause instanceof StreamsExhausted;
  if (cause instanceof StreamsExhausted || isDisplaced) {
    return new ApiError(503, 'ERR_NGROK_3007', 'The agent has reached its connection limit.', {
      retryAfter: 1,
      cause,
    });
  }
  if (cause instanceof ResponseTimeout) {
    return new ApiError(504, 'ERR_NGROK_3005', 'The upstream did not answer in time.', { cause });
  }
  if (cause instanceof MalformedMessage) {
    return new ApiError(502, 'ERR_NGROK_3004', 'The upstream sent an invalid HTTP response.', { cause });
  }
  return new ApiError(502, 'ERR_NGROK_3007', 'The connection to the upstream was lost.', { cause });
}
