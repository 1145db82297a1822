import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { type ApiErrorBody, EXIT_UNREACHABLE, messageOf, OperatorError } from '../lib/errors.ts';
import { hostPort, isUnspecified } from '../lib/ip-address.ts';
import { isLoopbackHost } from '../lib/loopback-host.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { apiTokenIfAny } from './api-token.ts';

const NOT_FOUND = 4;
const DEADLINE_MS = 45_000;

const WHERE_TOKEN = 'run this with the agent’s DATA_DIR as a user who may read api-token in it, or set AGENT_API_TOKEN';

interface Call {
  method: string;
  headers: Record<string, string>;
  body: string | undefined;
  deadlineMs: number;
}

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
  const content = body === undefined ? undefined : JSON.stringify(body);
  const { status, text } = await ask(base, path, {
    method,
    headers: headers(settings, body !== undefined),
    body: content,
    deadlineMs,
  });
  const isOk = status >= 200 && status < 300;
  const answer = text === '' && isOk ? undefined : parseAnswer(base, status, text);
  if (isOk) return answer as T;
  throw refusal(base, status, answer);
}

/**
 * The path of a tunnel in the API.
 *
 * @throws {OperatorError} exit code 2 for what would be the path of something else, such as an unset variable's nothing
 */
export function tunnelPath(name: string): string {
  if (/^\.{0,2}$/.test(name)) {
    throw new OperatorError(`"${name}" names no tunnel: give its first label, host or URL`, 2);
  }
  return `/tunnels/${encodeURIComponent(name)}`;
}

/** By Node's http client: its fetch refuses ports that mean something else to browsers, such as 6000. */
async function ask(base: string, path: string, call: Call): Promise<{ status: number; text: string }> {
  const { method, headers, body, deadlineMs } = call;
  const signal = AbortSignal.timeout(deadlineMs);
  let response: IncomingMessage | null = null;
  try {
    response = await new Promise<IncomingMessage>((resolve, reject) => {
      const asked = request(base + path, { method, headers, signal, agent: false });
      asked.on('response', resolve).on('error', reject).end(body);
    });
    return { status: response.statusCode ?? 0, text: await text(response) };
  } catch (error) {
    const problem = signal.aborted ? late(base, deadlineMs) : broken(base, response !== null, messageOf(error));
    throw new OperatorError(problem, EXIT_UNREACHABLE, { cause: error });
  }
}

function late(base: string, deadlineMs: number): string {
  return `the agent at ${base} did not answer within ${deadlineMs / 1000} s; device-agent tunnels shows what became of it`;
}

function broken(base: string, hasBegun: boolean, reason: string): string {
  if (hasBegun) return `the answer of ${base} broke off (${reason}); device-agent tunnels shows what became of it`;
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
    EXIT_UNREACHABLE,
  );
}

function refusal(base: string, status: number, answer: unknown): OperatorError {
  if (!isErrorBody(answer)) return stranger(base, status);
  const { msg, error_code, details = {} } = answer;
  const more = Object.entries(details).filter(([, problem]) => !msg.includes(problem));
  const lines = more.map(([place, problem]) => `\n  ${place}: ${problem}`).join('');
  const exitCode = status === 404 ? NOT_FOUND : 1;
  return new OperatorError(`${status === 401 ? `${msg}: ${WHERE_TOKEN}` : msg} (${error_code})${lines}`, exitCode);
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
