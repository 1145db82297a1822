import { ApiError } from '../../lib/errors.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';

export interface GatewayError {
  code: string | null;
  message: string;
}

/** HTTP status by error code of the gateway; 400 for {@link POLICY_CODE}, 502 for all others. */
const STATUS_BY_CODE: Readonly<Record<string, number>> = {
  // The endpoint is already online.
  ERR_NGROK_334: 409,
  ERR_NGROK_18016: 409,
  ERR_NGROK_18017: 409,
  // The account, its ACL or its plan does not allow it.
  ERR_NGROK_308: 403,
  ERR_NGROK_316: 403,
  ERR_NGROK_356: 403,
  ERR_NGROK_399: 403,
  ERR_NGROK_332: 501,
  // No tcp port is free.
  ERR_NGROK_18021: 503,
};

/** Codes of a refused traffic policy: our gateway's, and ngrok's for the single problems. */
const POLICY_CODE = /^ERR_NGROK_(?:9026|22\d\d)$/;
/** A line of such a refusal, the first with an introduction: `on_http_request[0].expressions[0]: <problem>`. */
const POLICY_PROBLEM = /^(?:the traffic policy(?: provided)? is invalid: )?(\w+(?:\[\d+\]|\.[\w-]+)*): (.+)$/;

export function offline(reason: string, cause?: unknown): AgentError {
  const message = `no session with the gateway: ${reason}`;
  return new AgentError('ERR_AGENT_OFFLINE', message, { retryAfter: RETRY_AFTER_S, cause });
}

/** Whether a session was lost, or its gateway does not answer. */
export function isOffline(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'ERR_AGENT_OFFLINE';
}

/** Converts a gateway's refusal to the error that the API answers with. */
export function apiErrorOf({ code, message }: GatewayError): ApiError {
  if (code === null) return new AgentError('ERR_AGENT_GATEWAY_REFUSED', message);
  if (POLICY_CODE.test(code)) return new ApiError(400, code, message, { details: policyProblems(message) });
  return new ApiError(STATUS_BY_CODE[code] ?? 502, code, message);
}

function policyProblems(message: string): Record<string, string> {
  const details: Record<string, string> = {};
  for (const line of message.split('\n')) {
    const [, place, problem] = POLICY_PROBLEM.exec(line) ?? [];
    if (place !== undefined && problem !== undefined) details[`policy.${place}`] = problem;
  }
  return details;
}

/** Removes a secret from a message in case the gateway quotes it. */
export function redact(text: string, secret: string): string {
  return secret === '' ? text : text.replaceAll(secret, '[authtoken]');
}
