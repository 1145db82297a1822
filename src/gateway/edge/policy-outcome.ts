import { ApiError } from '../../lib/errors.ts';
import type {
  ContentEncoding,
  ForwardFailure,
  PolicyAnswer,
  PolicyError,
  PolicyRequest,
  PolicyResponse,
} from '../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../endpoint.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';
import { encoderFor } from './encoder.ts';
import { answerError, closeUnlessBodyRead } from './error-answer.ts';

/** What becomes of forward-internal: agents cannot bind internal endpoints on this gateway yet. */
export const INTERNAL_TARGET_OFFLINE: ForwardFailure = {
  code: 'ERR_NGROK_3200',
  message: 'The internal endpoint is offline.',
};

/** The answer to a request whose forward-internal halts. */
export const FORWARD_FAILED: PolicyError = {
  kind: 'error',
  status: 404,
  ...INTERNAL_TARGET_OFFLINE,
  headers: [],
};

/** Answers a request as its policy decided; its response phase runs first, unless it was refused. */
export function answerByPolicy(
  req: ClientRequest,
  res: ClientResponse,
  outcome: PolicyAnswer | PolicyError,
  request: PolicyRequest,
  { policy }: GatewayEndpoint,
): void {
  if (outcome.kind === 'error' || outcome.refused || policy.onHttpResponse === null) {
    answerInstead(req, res, outcome);
    return;
  }
  const response: PolicyResponse = { status: outcome.status, headers: headersOf(outcome) };
  const replaced = policy.onHttpResponse(request, response);
  if (replaced) answerInstead(req, res, replaced);
  else send(req, res, response, outcome.body);
}

/** Answers with what the policy gives in place of everything else; no phase runs for it any more. */
export function answerInstead(req: ClientRequest, res: ClientResponse, outcome: PolicyAnswer | PolicyError): void {
  if (outcome.kind === 'answer') {
    send(req, res, { status: outcome.status, headers: headersOf(outcome) }, outcome.body);
  } else {
    const { status, code, message, headers } = outcome;
    answerError(req, res, new ApiError(status, code, message), headers);
  }
}

/** The answer's headers, to be changed at will, and its length. */
function headersOf({ status, headers, body }: PolicyAnswer): string[] {
  // These two never have a body, nor a length (RFC 9110, 8.6).
  if (status === 204 || status === 304) return [...headers];
  return [...headers, 'content-length', String(body.length)];
}

function send(
  req: ClientRequest,
  res: ClientResponse,
  { status, headers, encoding }: { status: number; headers: string[]; encoding?: ContentEncoding },
  body: Buffer,
): void {
  if (res.headersSent || res.destroyed) return;
  closeUnlessBodyRead(req, res);
  res.writeHead(status, headers);
  if (encoding === undefined) res.end(body);
  else encoderFor(res, encoding).end(body);
}
