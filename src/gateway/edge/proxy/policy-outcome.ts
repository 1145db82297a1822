import { ApiError } from '../../../lib/errors.ts';
import type { Compression, PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { PolicyAnswer, PolicyError } from '../../../traffic-policy/steps.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import type { EdgeRequest } from './edge-request.ts';
import { encoderFor } from './response-writer.ts';

/** Answers a request as its policy decided. The response phase runs first, unless the policy refused the request. */
export function answerByPolicy(
  request: EdgeRequest,
  outcome: PolicyAnswer | PolicyError,
  counters: TrafficCounters,
): void {
  const { req, res, policy } = request;
  if (outcome.kind === 'error' || outcome.refused || policy.onHttpResponse === null) {
    answerInstead(request, outcome, counters);
    return;
  }
  const response: PolicyResponse = { status: outcome.status, headers: headersOf(outcome, request) };
  const replaced = policy.onHttpResponse(request, response);
  if (replaced) answerInstead(request, replaced, counters);
  else send(req, res, response, outcome.body);
}

export function answerInstead(
  request: EdgeRequest,
  outcome: PolicyAnswer | PolicyError,
  counters: TrafficCounters,
): void {
  const { req, res } = request;
  if (outcome.kind === 'error' || outcome.refused) counters.refusedByPolicy += 1;
  if (outcome.kind === 'answer') {
    send(req, res, { status: outcome.status, headers: headersOf(outcome, request) }, outcome.body);
  } else {
    answerPolicyError(req, res, outcome);
  }
}

export function answerPolicyError(
  req: ClientRequest,
  res: ClientResponse,
  { status, code, message, headers, link }: PolicyError,
): void {
  answerError(req, res, new ApiError(status, code, message), headers, link);
}

/** A copy of the answer's headers, with its length and those that actions add to any response. */
function headersOf({ status, headers, body }: PolicyAnswer, { responseHeaders = [] }: EdgeRequest): string[] {
  // These two have neither body nor length (RFC 9110, 8.6).
  if (status === 204 || status === 304) return [...headers, ...responseHeaders];
  return [...headers, ...responseHeaders, 'content-length', String(body.length)];
}

function send(
  req: ClientRequest,
  res: ClientResponse,
  { status, headers, compression }: { status: number; headers: string[]; compression?: Compression },
  body: Buffer,
): void {
  if (res.headersSent || res.destroyed) return;
  closeUnlessBodyRead(req, res);
  res.writeHead(status, headers);
  if (compression === undefined) res.end(body);
  else encoderFor(res, compression).end(body);
}
