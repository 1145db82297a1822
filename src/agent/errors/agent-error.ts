import type { z } from 'zod';
import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';
import { formatPath, unknownMemberAlone } from '../../lib/validation-messages.ts';

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

const WHOLE = '(document)';

export function problemList(error: z.ZodError): string[] {
  return Object.entries(problemsOf(error)).map(([place, problem]) => `${place}: ${problem}`);
}

/** All problems that a schema found, by place such as `policy.inbound[0].actions`. Each unknown member has its own. */
export function problemsOf(error: z.ZodError): Record<string, string> {
  // A Map keeps the problem of a member called `__proto__`, which assigning to an object would lose.
  const problems = new Map<string, string>();
  const report = (path: readonly PropertyKey[], problem: string) => {
    const place = formatPath(path) || WHOLE;
    const before = problems.get(place);
    problems.set(place, before === undefined ? problem : `${before}; ${problem}`);
  };
  for (const issue of error.issues) {
    if (issue.code === 'unrecognized_keys') {
      for (const key of issue.keys) report([...issue.path, key], unknownMemberAlone(key, issue.message));
    } else {
      report(issue.path, issue.message);
    }
  }
  return Object.fromEntries(problems);
}
