import { z } from 'zod';
import { messageOf } from '../lib/errors.ts';
import { parseRetryAfter } from '../lib/http/retry-after.ts';
import { DeadlineExceeded } from '../lib/time/deadline.ts';
import type { FetchAnswer } from './fetch-trusting.ts';
import { ManagementError, TIMEOUT, UNREACHABLE, UNREADABLE_ANSWER } from './management-error.ts';

const ErrorBody = z.object({
  error_code: z.string().nullish(),
  msg: z.string().nullish(),
  details: z.record(z.string(), z.string()).nullish().catch(null),
});

/** The error of a call without a response; `name` is for example `GET /bot_users`. */
export function noAnswer(name: string, error: unknown): ManagementError {
  if (error instanceof DeadlineExceeded) return new ManagementError(error.message, { status: null, code: TIMEOUT });
  // Node's fetch throws a TypeError "fetch failed" with the reason in its cause. After attempts at several addresses, the
  // cause has a code but no message.
  const reason = error instanceof TypeError && error.cause !== undefined ? error.cause : error;
  const why = messageOf(reason) || String((reason as { code?: unknown }).code);
  const text = `${name}: API unreachable: ${why}`;
  return new ManagementError(text, { status: null, code: UNREACHABLE, cause: error });
}

/** The response's JSON; undefined for a 204. @throws {ManagementError} when the response is an error or not JSON */
export function readAnswer(name: string, answer: FetchAnswer, text: string): unknown {
  if (answer.status === 204) return undefined;
  const isSuccess = answer.status >= 200 && answer.status < 300;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    if (isSuccess) throw unreadable(name, answer.status, 'the response is not JSON', cause);
  }
  if (isSuccess) return json;
  throw apiError(name, answer, json);
}

/** The error of a successful response that does not match the operation. */
export function unreadable(name: string, status: number, why: string, cause?: unknown): ManagementError {
  return new ManagementError(`${name}: ${why}`, { status, code: UNREADABLE_ANSWER, cause });
}

function apiError(name: string, answer: FetchAnswer, json: unknown): ManagementError {
  const { data } = ErrorBody.safeParse(json);
  const details = data?.details ?? {};
  const code = data?.error_code ?? null;
  const isRedirect = answer.status >= 300 && answer.status < 400;
  const msg = isRedirect
    ? `redirected to ${answer.headers.get('location') ?? 'an unknown URL'}; set that as the base URL`
    : (data?.msg ?? `the API responded with status ${answer.status}`);
  return new ManagementError(`${name}: ${msg}${code ? ` (${code})` : ''}`, {
    status: answer.status,
    code,
    details,
    operationId: details.operation_id ?? answer.headers.get('ngrok-operation-id'),
    retryAfterMs: parseRetryAfter(answer.headers.get('retry-after')),
  });
}
