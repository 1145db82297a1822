import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';

/** HTTP status by error code of the agent. Codes are never reused. */
const STATUS = {
  ERR_AGENT_INVALID_REQUEST: 400,
  ERR_AGENT_MALFORMED_JSON: 400,
  ERR_AGENT_NOT_INSPECTABLE: 400,
  ERR_AGENT_POLICY_NOT_APPLICABLE: 400,
  ERR_AGENT_UPSTREAM_NOT_ALLOWED: 400,
  ERR_AGENT_UPSTREAM_UNKNOWN: 400,
  ERR_AGENT_UNAUTHORIZED: 401,
  ERR_AGENT_HOST_NOT_ALLOWED: 403,
  ERR_AGENT_CROSS_SITE: 403,
  ERR_AGENT_FORWARDED: 403,
  ERR_AGENT_NO_SUCH_PATH: 404,
  ERR_AGENT_REQUEST_NOT_FOUND: 404,
  ERR_AGENT_SHARE_LINK_NOT_FOUND: 404,
  ERR_AGENT_TUNNEL_NOT_FOUND: 404,
  ERR_AGENT_METHOD_NOT_ALLOWED: 405,
  ERR_AGENT_DOMAIN_IN_USE: 409,
  ERR_AGENT_AMBIGUOUS: 409,
  ERR_AGENT_NOT_REPLAYABLE: 409,
  ERR_AGENT_NO_SHARE_LINKS: 409,
  ERR_AGENT_BODY_TOO_LARGE: 413,
  ERR_AGENT_UNSUPPORTED_MEDIA_TYPE: 415,
  ERR_AGENT_TOO_MANY_ATTEMPTS: 429,
  ERR_AGENT_INTERNAL: 500,
  ERR_AGENT_NOT_PERSISTED: 500,
  ERR_AGENT_NOT_SHAREABLE: 501,
  ERR_AGENT_GATEWAY_REFUSED: 502,
  ERR_AGENT_BUSY: 503,
  ERR_AGENT_OFFLINE: 503,
  ERR_AGENT_NOT_READY: 503,
  ERR_AGENT_STOPPING: 503,
} as const;

/** When to retry a request that failed because of the agent's state, for example a lost session. */
export const RETRY_AFTER_S = 5;

export type AgentErrorCode = keyof typeof STATUS;

/** An error of the agent itself. The gateway's are plain {@link ApiError}s with `ERR_NGROK_…` codes. */
export class AgentError extends ApiError {
  constructor(code: AgentErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(STATUS[code], code, message, options);
  }
}
