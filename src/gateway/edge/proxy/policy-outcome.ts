import { ApiError } from '../../../lib/errors.ts';
import type { PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import type { PolicyAnswer, PolicyError, ResponseOutcome } from '../../../traffic-policy/steps.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import { noteDeniedRequest } from '../connections/denials.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { answerError, closeUnlessBodyRead } from '../http/error-response.ts';
import { mayHaveBody } from '../http/headers.ts';
import type { EdgeRequest } from './edge-request.ts';
import { sinkFor } from './response-writer.ts';

/** Answers as the policy decided, after the response phase unless it refused. @returns rejects when that fails */
export function answerByPolicy(
  request: EdgeRequest,
  outcome: PolicyAnswer | PolicyError,
  context: EdgeContext,
): Promise<void> | undefined {
  const { policy } = request;
  if (outcome.kind === 'error' || outcome.refused || policy.onHttpResponse === null) {
    answerInstead(request, outcome, context);
    return undefined;
  }
  const { status, body } = outcome;
  const readBody = async (limit: number) => (body.length > limit ? null : body);
  const hasBody = mayHaveBody(request.method, status);
  const response: PolicyResponse = { status, headers: headersOf(outcome), ...(hasBody && { readBody }) };
  const finish = (replaced: ResponseOutcome | undefined) => {
    if (replaced) answerInstead(request, replaced, context);
    else send(request, response, response.body ?? body);
  };
  const result = policy.onHttpResponse(request, response);
  if (result instanceof Promise) return result.then(finish);
  finish(result);
  return undefined;
}

export function answerInstead(request: EdgeRequest, outcome: PolicyAnswer | PolicyError, context: EdgeContext): void {
  const { req, res, endpoint } = request;
  if (outcome.kind === 'error' || outcome.refused) {
    request.refuse();
    noteDeniedRequest(context, endpoint, req, outcome.status);
  }
  if (outcome.kind === 'answer') {
    send(request, { status: outcome.status, headers: headersOf(outcome) }, outcome.body);
  } else {
    answerPolicyError(req, res, outcome);
  }
}

export function answerPolicyError(
  req: ClientRequest,
  res: ClientResponse,
  { status, code, message, headers, link }: PolicyError,
): void {
  answerError(req, res, new ApiError(status, code, message), headers, { link });
}

/** A copy of the answer's headers, with its length. */
function headersOf({ status, headers, body }: PolicyAnswer): string[] {
  // These two have neither body nor length (RFC 9110, 8.6).
  if (status === 204 || status === 304) return [...headers];
  return [...headers, 'content-length', String(body.length)];
}

function send(request: EdgeRequest, response: PolicyResponse, body: Buffer): void {
  const { req, res } = request;
  if (res.headersSent || res.destroyed) return;
  closeUnlessBodyRead(req, res);
  res.writeHead(response.status, request.withCookies(response.headers));
  sinkFor(request, response).end(body);
}
