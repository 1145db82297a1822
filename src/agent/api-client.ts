import type { ApiErrorBody } from '../lib/errors.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { hostPort, isUnspecified } from '../lib/ip-address.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { isLoopbackHost } from './api/host-guard.ts';
import { apiTokenIfAny } from './api-token.ts';

export const UNREACHABLE = 3;
const NOT_FOUND = 4;
const DEADLINE_MS = 45_000;

/**
 * Calls the API of the agent that runs on this device.
 *
 * @param settings say where it listens and which token it wants
 * @param deadlineMs milliseconds to wait; the default is long, as starting a tunnel waits for the gateway in turn
 * @returns the answer's JSON; undefined when it is empty
 * @throws {OperatorError} exit code 3 when no agent answers, 4 when there is no such tunnel, 1 when it refuses
 */
export async function callAgent<T>(
  settings: Settings,
  method: string,
  path: string,
  { body, deadlineMs = DEADLINE_MS }: { body?: unknown; deadlineMs?: number } = {},
): Promise<T> {
  const base = apiAddress(settings);
  const { status, ok, text } = await ask(base, path, deadlineMs, {
    method,
    headers: headers(settings, body !== undefined),
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(deadlineMs),
  });
  const answer = text === '' && ok ? undefined : parseAnswer(base, status, text);
  if (ok) return answer as T;
  throw refusal(base, status, answer);
}

async function ask(base: string, path: string, deadlineMs: number, request: RequestInit) {
  let response: Response | null = null;
  try {
    response = await fetch(base + path, request);
    return { status: response.status, ok: response.ok, text: await response.text() };
  } catch (error) {
    const reason = error instanceof Error && error.cause ? messageOf(error.cause) : messageOf(error);
    throw new OperatorError(describe(request, response, reason, base, deadlineMs), UNREACHABLE, { cause: error });
  }
}

function describe(
  { signal }: RequestInit,
  response: Response | null,
  reason: string,
  base: string,
  deadlineMs: number,
): string {
  if (signal?.aborted) {
    return `the agent at ${base} did not answer within ${deadlineMs / 1000} s; device-agent tunnels shows what became of it`;
  }
  if (response) return `the answer of ${base} broke off (${reason}); device-agent tunnels shows what became of it`;
  return `no agent answers at ${base} (${reason}); is it running? start it with: device-agent run`;
}

function parseAnswer(base: string, status: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw stranger(base, status);
  }
}

function stranger(base: string, status: number): OperatorError {
  return new OperatorError(
    `what answers at ${base} is no device agent (status ${status}); set AGENT_HOST and AGENT_PORT to where it listens`,
    UNREACHABLE,
  );
}

function refusal(base: string, status: number, answer: unknown): OperatorError {
  if (!isErrorBody(answer)) return stranger(base, status);
  const details = Object.entries(answer.details ?? {}).map(([place, problem]) => `\n  ${place}: ${problem}`);
  const exitCode = status === 404 ? NOT_FOUND : 1;
  return new OperatorError(`${answer.msg} (${answer.error_code})${details.join('')}`, exitCode);
}

function isErrorBody(answer: unknown): answer is ApiErrorBody {
  return typeof answer === 'object' && answer !== null && 'error_code' in answer && 'msg' in answer;
}

/**
 * Where the local API is.
 *
 * @throws {OperatorError} exit code 2 when the settings do not tell
 */
export function apiAddress({ api }: Settings): string {
  if (api.port === 0) {
    throw new OperatorError(
      'AGENT_PORT=0 lets the agent choose its port, which is unknown here; set AGENT_PORT to the one that its log names',
      2,
    );
  }
  return `http://${hostPort(isUnspecified(api.host) ? '127.0.0.1' : api.host, api.port)}`;
}

function headers(settings: Settings, hasBody: boolean): Record<string, string> {
  // On loopback the agent asks for none, and while it is not running anyone may listen there to collect it.
  const token = isLoopbackHost(settings.api.host) ? null : apiTokenIfAny(settings);
  return {
    ...(hasBody && { 'content-type': 'application/json' }),
    ...(token !== null && { authorization: `Bearer ${token}` }),
  };
}
