import { ApiError } from '../../../lib/errors.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import { StreamsExhausted } from '../../endpoints/online-endpoint.ts';

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

/** Another gateway accepts connections, or did, and does not answer: it is stopped, or the network to or from it fails. */
export class GatewaySilent extends Error {
  constructor() {
    super('the gateway does not answer');
    this.name = 'GatewaySilent';
  }
}

export class ResponseTimeout extends Error {
  /** @param limitMs after which it was overdue */
  constructor(readonly limitMs: number) {
    super(`upstream did not answer within ${limitMs / 1000} s`);
    this.name = 'ResponseTimeout';
  }
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

export const unknownHost = (host: string): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', `The endpoint ${host} is offline: no agent has it open.`);

/** Seconds after which a client may try again whose agent has not come back so far. */
export const AWAY_RETRY_S = 3;
export const AGENT_AWAY = 'ERR_GATEWAY_AGENT_AWAY';

export const agentAway = (host: string): ApiError =>
  new ApiError(503, AGENT_AWAY, `The agent of ${host} has lost its connection a moment ago and is not back yet.`, {
    retryAfter: AWAY_RETRY_S,
  });

export const endpointRemoved = (): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', 'The endpoint went offline before it could answer.');

export const addressRefused = (): ApiError =>
  new ApiError(403, 'ERR_NGROK_3205', 'Your IP address is not allowed to use endpoints of this gateway.');

/** Code of {@link upstreamUnreachable}. */
export const UPSTREAM_UNREACHABLE = 'ERR_NGROK_8012';

/** @param summary what the agent says of its upstream; null: nothing */
export const upstreamUnreachable = (summary: string | null = null): ApiError =>
  new ApiError(502, UPSTREAM_UNREACHABLE, `The agent is online, but its upstream ${summary ?? 'is unreachable'}.`);

export const gatewaySilent = (cause: GatewaySilent): ApiError =>
  new ApiError(
    504,
    'ERR_NGROK_3007',
    'The gateway that serves this does not answer; what was asked may have been done.',
    {
      retryAfter: 1,
      cause,
    },
  );

export const malformedRequest = (why: string): ApiError => new ApiError(400, 'ERR_NGROK_3004', `Bad request: ${why}.`);

export const headersTooLong = (): ApiError => new ApiError(431, 'ERR_NGROK_3004', 'Bad request: headers too long.');

export const tooManyCookies = (bytes: number): ApiError =>
  new ApiError(
    431,
    'ERR_NGROK_3004',
    `The browser sends ${Math.ceil(bytes / 1024)} KB of cookies, more than the gateway accepts. This site or a neighbour below the same domain has set them. Delete the cookies of that domain; you may have to sign in again.`,
  );

export const requestTimeout = (): ApiError => new ApiError(408, 'ERR_NGROK_3004', 'Bad request: not received in time.');

export const unknownExpectation = (): ApiError =>
  new ApiError(417, 'ERR_NGROK_3004', 'Bad request: unsupported expectation.');

export const misdirected = (host: string): ApiError =>
  new ApiError(421, 'ERR_NGROK_3004', `Requests for ${host} need a separate connection.`);

export const internalFailure = (): ApiError =>
  new ApiError(500, 'ERR_NGROK_2300', 'The gateway failed to process the request.');

/** Whether an error of {@link upstreamFailure} can be that of a request whose agent was lost. */
export const isLoss = ({ code, status }: ApiError): boolean =>
  (code === 'ERR_NGROK_3007' && status === 502) || (code === 'ERR_NGROK_3200' && status === 404);

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
  const reason = cause instanceof ConnectionLost ? cause.cause : cause;
  if (reason instanceof GatewaySilent) return gatewaySilent(reason);
  if (cause instanceof ResponseTimeout) {
    const { limitMs } = cause;
    const message = `The upstream did not begin to answer within ${limitMs / 1000} s, which is the response_timeout of this tunnel.`;
    return new ApiError(504, 'ERR_NGROK_3005', message, { cause });
  }
  if (cause instanceof MalformedMessage) {
    const { message } = cause;
    return new ApiError(502, 'ERR_NGROK_3004', `The upstream sent an invalid HTTP response: ${message}.`, {
      details: { response: message },
      cause,
    });
  }
  return new ApiError(502, 'ERR_NGROK_3007', 'The connection to the upstream was lost.', { cause });
}
