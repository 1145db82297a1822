import { ApiError } from '../../../lib/errors.ts';
import { StreamsExhausted } from '../../endpoints/endpoint.ts';
import { MalformedMessage } from './header-fields.ts';
import { ResponseTimeout } from './upstream-failure.ts';

export const unknownHost = (host: string): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', `The endpoint ${host} is offline: no agent has it open.`);

export const endpointRemoved = (): ApiError =>
  new ApiError(404, 'ERR_NGROK_3200', 'The endpoint went offline before it could answer.');

export const upstreamUnreachable = (): ApiError =>
  new ApiError(502, 'ERR_NGROK_8012', 'The agent is online, but the service behind it cannot be reached.');

export const malformedRequest = (why: string): ApiError => new ApiError(400, 'ERR_NGROK_3004', `Bad request: ${why}.`);

export const headersTooLong = (): ApiError =>
  new ApiError(431, 'ERR_NGROK_3004', 'Bad request: its headers are too long.');

export const requestTimeout = (): ApiError =>
  new ApiError(408, 'ERR_NGROK_3004', 'Bad request: its headers did not arrive in time.');

export const unknownExpectation = (): ApiError =>
  new ApiError(417, 'ERR_NGROK_3004', 'Bad request: what it expects is not known here.');

export const misdirected = (host: string): ApiError =>
  new ApiError(421, 'ERR_NGROK_3004', `Requests for ${host} need a connection of their own.`);

export const internalFailure = (): ApiError =>
  new ApiError(500, 'ERR_NGROK_2300', 'The gateway failed on this request.');

/**
 * What a client is told when a request failed between the edge and the upstream.
 *
 * @param cause as the upstream's connection or the agent's session raised it
 */
export function upstreamFailure(cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  if (cause instanceof StreamsExhausted) {
    return new ApiError(503, 'ERR_NGROK_3007', 'The agent is carrying as many connections as it can.', {
      retryAfter: 1,
      cause,
    });
  }
  if (cause instanceof ResponseTimeout) {
    return new ApiError(504, 'ERR_NGROK_3005', 'The service behind the agent did not answer in time.', { cause });
  }
  if (cause instanceof MalformedMessage) {
    return new ApiError(502, 'ERR_NGROK_3004', 'The service behind the agent gave no valid HTTP answer.', { cause });
  }
  return new ApiError(502, 'ERR_NGROK_3007', 'The connection to the service behind the agent broke off.', { cause });
}
