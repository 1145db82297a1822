/** An error that the API answered with, or that kept it from answering. */
export class ApiProblem extends Error {
  /**
   * @param status 0 without an answer
   * @param code the API's code, for example `ERR_AGENT_OFFLINE`; null when the answer has none
   * @param details problems by place
   */
  constructor(
    readonly status: number,
    readonly code: string | null,
    message: string,
    readonly details: Readonly<Record<string, string>> = {},
  ) {
    super(message);
  }
}

const DEADLINE_MS = 60_000;
/** Connections break when a phone changes networks: what changes nothing is then tried again. */
const MAX_TRIES = 3;
const RETRY_MS = 1_000;

/** Where a path of the API is: beside the page, which a proxy may serve below a path of its own. */
export function besidePage(path: string): string {
  return `.${path}`;
}

/**
 * Calls the API that the page comes from.
 *
 * @param headers further headers that this API needs
 * @returns the answer's JSON; undefined when it is empty
 * @throws {ApiProblem}
 */
export async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<T> {
  const options = {
    method,
    credentials: 'same-origin' as const,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  };
  const { response, text } = await exchange(path, options, method === 'GET' ? MAX_TRIES : 1);
  const answer = parse(text);
  if (response.ok) return answer as T;
  throw problemIn(response.status, answer);
}

async function exchange(
  path: string,
  options: RequestInit,
  tries: number,
): Promise<{ response: Response; text: string }> {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  for (let left = tries - 1; ; left--) {
    try {
      const response = await fetch(besidePage(path), { ...options, signal });
      return { response, text: await response.text() };
    } catch {
      if (left === 0 || signal.aborted) throw new ApiProblem(0, null, 'no answer: check the network, then try again');
      await new Promise((resolve) => window.setTimeout(resolve, RETRY_MS));
    }
  }
}

function parse(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

function problemIn(status: number, answer: unknown): ApiProblem {
  const { error_code, msg, details } = (answer ?? {}) as { error_code?: unknown; msg?: unknown; details?: object };
  if (typeof error_code !== 'string' || typeof msg !== 'string') {
    return new ApiProblem(status, null, `unexpected answer with status ${status}: try again, then see the log`);
  }
  // The gateway's log has its operation id, which helps where the message cannot say more.
  const { operation_id: operation, ...problems } = (details ?? {}) as Record<string, unknown>;
  const code = status >= 500 && typeof operation === 'string' ? `${error_code} · ${operation}` : error_code;
  const places = Object.entries(problems).map(([place, problem]) => [place, String(problem)]);
  return new ApiProblem(status, code, msg, Object.fromEntries(places));
}
