import { ApiError } from '../../../lib/errors.ts';
import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { ContentEncoding, PolicyRequest, PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { PolicyAnswer, PolicyError } from '../../../traffic-policy/steps.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { encoderFor } from './encoder.ts';

/**
 * Answers a request as its policy decided; the response phase runs first, unless it was refused.
 *
 * @param policy what has a say on the response
 */
export function answerByPolicy(
  req: ClientRequest,
  res: ClientResponse,
  outcome: PolicyAnswer | PolicyError,
  request: PolicyRequest,
  policy: CompiledPolicy,
  counters: TrafficCounters,
): void {
  if (outcome.kind === 'error' || outcome.refused || policy.onHttpResponse === null) {
    answerInstead(req, res, outcome, counters);
    return;
  }
  const response: PolicyResponse = { status: outcome.status, headers: headersOf(outcome) };
  const replaced = policy.onHttpResponse(request, response);
  if (replaced) answerInstead(req, res, replaced, counters);
  else send(req, res, response, outcome.body);
}

/** Answers with what the policy gives in place of everything else; no phase runs for it any more. */
export function answerInstead(
  req: ClientRequest,
  res: ClientResponse,
  outcome: PolicyAnswer | PolicyError,
  counters: TrafficCounters,
): void {
  if (outcome.kind === 'error' || outcome.refused) counters.refusedByPolicy += 1;
  if (outcome.kind === 'answer') {
    send(req, res, { status: outcome.status, headers: headersOf(outcome) }, outcome.body);
  } else {
    answerPolicyError(req, res, outcome);
  }
}

/** Answers with an error page in the words of the policy engine. */
export function answerPolicyError(
  req: ClientRequest,
  res: ClientResponse,
  { status, code, message, headers }: PolicyError,
): void {
  answerError(req, res, new ApiError(status, code, message), headers);
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
