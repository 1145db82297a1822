import { writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import type { z } from 'zod';
import { type ApiErrorBody, EXIT_UNREACHABLE, messageOf, OperatorError } from '../lib/errors.ts';
import { hostPort, isLoopbackHost, isUnspecified } from '../lib/network/ip-address.ts';
import { ownCommand } from '../lib/process/own-command.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { apiTokenIfAny } from '../settings/api-token.ts';
import type {
  HEALTH_OPERATIONS,
  LIVENESS_OPERATIONS,
  SHARE_LINK_OPERATIONS,
  TUNNEL_OPERATIONS,
} from './api/agent-operations.ts';
import type { INSPECTION_OPERATIONS } from './api/inspection/inspection-operations.ts';

export type { CreatedTunnel, ListedTunnel, TunnelDetail, TunnelShareLink } from './api/agent-operations.ts';
export type * from './api/inspection/inspection-reports.ts';
export type { StatusReport } from './api/status-report.ts';

type Tables = typeof TUNNEL_OPERATIONS &
  typeof SHARE_LINK_OPERATIONS &
  typeof LIVENESS_OPERATIONS &
  typeof HEALTH_OPERATIONS &
  typeof INSPECTION_OPERATIONS;
/** The operations by method and path. */
type Operations = {
  [Id in keyof Tables as `${Uppercase<Tables[Id]['method']>} ${Tables[Id]['path']}`]: Tables[Id];
};
/** An operation of the agent's API, such as `GET /tunnels/{url_part}`. */
export type AgentRoute = keyof Operations;

type NamesIn<Path> = Path extends `${string}{${infer Name}}${infer Rest}` ? Name | NamesIn<Rest> : never;
type MembersOf<R extends AgentRoute, Part extends string> =
  Operations[R] extends Record<Part, infer S extends z.ZodType> ? keyof z.input<S> : never;

/** The name of a member of an operation's body. */
export type BodyMember<R extends AgentRoute> = MembersOf<R, 'body'>;

/** What fills an operation's path, and what is sent. Only names are checked here: the agent judges the values. */
type Input<R extends AgentRoute> = Record<NamesIn<R>, string> & {
  query?: { readonly [Name in MembersOf<R, 'query'>]?: string | undefined };
  body?: { readonly [Name in MembersOf<R, 'body'>]?: unknown };
  /** The default is long because starting a tunnel waits for the gateway. */
  deadlineMs?: number;
};
/** The input may be left out where the path has no names. */
type Inputs<R extends AgentRoute> = [NamesIn<R>] extends [never] ? [input?: Input<R>] : [input: Input<R>];
type Answer<R extends AgentRoute> = Operations[R]['answer'] extends infer A extends z.ZodType ? z.output<A> : undefined;

const NOT_FOUND = 4;
const DEADLINE_MS = 45_000;
/** A live feed sends something every 10 s. */
const SILENCE_MS = 30_000;

/** No agent answers at the address of the settings; the command line says how to start the one that is meant. */
export class NoAgent extends OperatorError {}

const TOKEN_ADVICE = 'run this with the DATA_DIR of the agent as a user who can read api-token, or set AGENT_API_TOKEN';

/** The agent answered with an error. */
export class AgentRefusal extends OperatorError {
  /** @param body the error as the API sent it */
  constructor(
    message: string,
    exitCode: number,
    readonly body: ApiErrorBody,
  ) {
    super(message, exitCode);
  }
}

interface Call {
  method: string;
  headers: Record<string, string>;
  body: string | undefined;
  deadlineMs: number;
}

/**
 * Calls an operation of the agent on this device.
 *
 * @returns what it answers; undefined when that is empty
 * @throws {OperatorError} exit code 2 for a name that makes no path, 3 when no agent answers; {AgentRefusal} 4 when no tunnel
 *   matches, 1 for other refusals
 */
export async function callAgent<R extends AgentRoute>(
  settings: Settings,
  route: R,
  ...[input]: Inputs<R>
): Promise<Answer<R>> {
  const base = apiAddress(settings);
  const { body, deadlineMs = DEADLINE_MS } = input ?? {};
  const content = body === undefined ? undefined : JSON.stringify(body);
  const { method, path } = target(route, input);
  const { status, text } = await ask(base, path, {
    method,
    headers: headers(settings, body !== undefined),
    body: content,
    deadlineMs,
  });
  const isOk = status >= 200 && status < 300;
  const answer = text === '' && isOk ? undefined : parseAnswer(base, status, text);
  if (isOk) return answer as Answer<R>;
  throw refusal(base, status, answer);
}

/** Method, and path with its query. */
function target(route: AgentRoute, input: { query?: Readonly<Record<string, string | undefined>> } = {}) {
  const [method = '', pattern = ''] = route.split(' ');
  const names = new Map(Object.entries(input));
  const path = pattern.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(names.get(name));
    return encodeURIComponent(name === 'url_part' ? tunnelName(value) : value);
  });
  const given = Object.entries(input.query ?? {}).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const query = given.length === 0 ? '' : `?${new URLSearchParams(given)}`;
  return { method, path: path + query };
}

/** @throws {OperatorError} exit code 2 for a name that would make another path, such as an empty one */
function tunnelName(name: string): string {
  if (!/^\.{0,2}$/.test(name)) return name;
  throw new OperatorError(`not a tunnel name: "${name}"; give its first label, host or URL`, 2);
}

export interface AgentEvent {
  name: string;
  data: unknown;
}

/**
 * Reads a live feed of the agent's API until it ends.
 *
 * @param signal ends it without an error
 * @throws {OperatorError} as {@link callAgent}; exit code 3 when the feed breaks off
 */
export async function* agentEvents<R extends AgentRoute>(
  settings: Settings,
  route: R,
  input: Input<R>,
  signal: AbortSignal,
): AsyncGenerator<AgentEvent> {
  const base = apiAddress(settings);
  const { path } = target(route, input);
  const asked = request(base + path, { headers: headers(settings, false), signal, agent: false, timeout: SILENCE_MS });
  asked.on('timeout', () => asked.destroy(new Error(`nothing from the agent for ${SILENCE_MS / 1_000} s`)));
  let hasBegun = false;
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      asked.on('response', resolve).on('error', reject).end();
    });
    hasBegun = true;
    if (response.statusCode !== 200) {
      const status = response.statusCode ?? 0;
      throw refusal(base, status, parseAnswer(base, status, await text(response)));
    }
    yield* eventsIn(response.setEncoding('utf8'));
    throw new Error('the feed has ended');
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof OperatorError) throw error;
    throw failed(base, hasBegun, error);
  } finally {
    asked.destroy();
  }
}

async function* eventsIn(pieces: AsyncIterable<string>): AsyncGenerator<AgentEvent> {
  let rest = '';
  for await (const piece of pieces) {
    const events = (rest + piece).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
      if (name !== undefined && data !== undefined) yield { name, data: JSON.parse(data) };
    }
  }
}

/**
 * Saves what the agent answers to a file.
 *
 * @throws {OperatorError} as {@link callAgent}, 1 when the file cannot be written
 */
export async function downloadFromAgent<R extends AgentRoute>(
  settings: Settings,
  route: R,
  input: Input<R>,
  file: string,
): Promise<void> {
  const { method, path } = target(route, input);
  const { status, text: content } = await ask(apiAddress(settings), path, {
    method,
    headers: headers(settings, false),
    body: undefined,
    deadlineMs: DEADLINE_MS,
  });
  if (status !== 200) throw refusal(apiAddress(settings), status, parseAnswer(apiAddress(settings), status, content));
  await writeFile(file, content, { mode: 0o600 }).catch((error: unknown) => {
    throw new OperatorError(`cannot write ${file}: ${messageOf(error)}`);
  });
}

/** Not by fetch(), which refuses ports that browsers block, such as 6000. */
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
    if (!signal.aborted) throw failed(base, response !== null, error);
    throw new OperatorError(timedOut(base, deadlineMs), EXIT_UNREACHABLE, { cause: error });
  }
}

function timedOut(base: string, deadlineMs: number): string {
  return `no answer from the agent at ${base} within ${deadlineMs / 1000} s; check the result with: ${ownCommand('tunnels')}`;
}

function failed(base: string, hasBegun: boolean, cause: unknown): OperatorError {
  const reason = messageOf(cause);
  if (!hasBegun) return new NoAgent(`no agent answers at ${base}: ${reason}`, EXIT_UNREACHABLE, { cause });
  const problem = `incomplete answer from ${base}: ${reason}; check the result with: ${ownCommand('tunnels')}`;
  return new OperatorError(problem, EXIT_UNREACHABLE, { cause });
}

function parseAnswer(base: string, status: number, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw notAnAgent(base, status);
  }
}

function notAnAgent(base: string, status: number): OperatorError {
  return new OperatorError(
    `not a device agent: ${base} answered with status ${status}; set AGENT_HOST and AGENT_PORT to the agent's address`,
    EXIT_UNREACHABLE,
  );
}

function refusal(base: string, status: number, answer: unknown): OperatorError {
  if (!isErrorBody(answer)) return notAnAgent(base, status);
  const { msg, error_code, details = {} } = answer;
  const more = Object.entries(details).filter(([, problem]) => !msg.includes(problem));
  const lines = more.map(([place, problem]) => `\n  ${place}: ${problem}`).join('');
  const exitCode = status === 404 ? NOT_FOUND : 1;
  const text = `${status === 401 ? `${msg}: ${TOKEN_ADVICE}` : msg} (${error_code})${lines}`;
  return new AgentRefusal(text, exitCode, answer);
}

function isErrorBody(answer: unknown): answer is ApiErrorBody {
  return typeof answer === 'object' && answer !== null && 'error_code' in answer && 'msg' in answer;
}

/**
 * The URL of the local API.
 *
 * @throws {OperatorError} exit code 2 when the settings leave its port open
 */
export function apiAddress({ api }: Settings): string {
  if (api.port === 0) {
    throw new OperatorError(
      'unknown API port: AGENT_PORT=0 lets the agent choose it; set AGENT_PORT to the port in its log',
      2,
    );
  }
  return `http://${hostPort(isUnspecified(api.host) ? '127.0.0.1' : api.host, api.port)}`;
}

function headers(settings: Settings, hasBody: boolean): Record<string, string> {
  // Loopback needs no token, and while the agent is down another program could listen there to collect it.
  const token = isLoopbackHost(settings.api.host) ? null : apiTokenIfAny(settings);
  return {
    ...(hasBody && { 'content-type': 'application/json' }),
    ...(token !== null && { authorization: `Bearer ${token}` }),
  };
}
