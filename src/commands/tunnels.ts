import { readFileSync } from 'node:fs';
import { isLoopbackHost } from '../agent/api/host-guard.ts';
import { apiTokenIfAny } from '../agent/api-token.ts';
import type { ApiErrorBody } from '../lib/errors.ts';
import { messageOf, OperatorError } from '../lib/errors.ts';
import { loadSettings, type Settings } from '../settings.ts';

/** A tunnel as the API lists it. */
interface ListedTunnel {
  url: string;
  url_part: string;
  protocol: string;
  forwards_to: string;
  domain: string;
  policy: string;
}

interface TunnelDetail extends ListedTunnel {
  status: string;
  since: string;
  created_at: string;
  last_error: { code: string | null; message: string } | null;
}

interface JsonOption {
  json?: boolean;
}

const UNREACHABLE = 3;
const NOT_FOUND = 4;
/** Milliseconds to wait for the agent; starting a tunnel waits for the gateway in turn. */
const DEADLINE_MS = 45_000;

/** Prints all tunnels as a table, or as JSON. */
export async function listTunnels(options: JsonOption): Promise<void> {
  const tunnels = await call<ListedTunnel[]>('GET', '/tunnels');
  if (options.json) return print(JSON.stringify(tunnels, null, 2));
  if (tunnels.length === 0)
    return print('No tunnels. Start one with: device-agent tunnels start 8001 --domain HOSTNAME');
  print(
    table(
      ['NAME', 'URL', 'PROTOCOL', 'FORWARDS TO'],
      tunnels.map((t) => [t.url_part, t.url, t.protocol, t.forwards_to]),
    ),
  );
}

/**
 * Starts a tunnel and prints its URL.
 *
 * @throws {OperatorError} exit code 2 when the policy file cannot be used, 1 when the agent refuses
 */
export async function startTunnel(
  forwardsTo: string,
  options: JsonOption & { domain?: string; protocol: string; policy?: string },
): Promise<void> {
  const tunnel = await call<ListedTunnel>('POST', '/tunnels', {
    protocol: options.protocol,
    forwards_to: forwardsTo,
    ...(options.domain !== undefined && { domain: options.domain }),
    ...(options.policy !== undefined && { policy: readPolicy(options.policy) }),
  });
  print(options.json ? JSON.stringify(tunnel, null, 2) : `${tunnel.url} -> ${tunnel.forwards_to}`);
}

/** Prints one tunnel with its state. */
export async function showTunnel(name: string, options: JsonOption): Promise<void> {
  const tunnel = await call<TunnelDetail>('GET', `/tunnels/${encodeURIComponent(name)}`);
  if (options.json) return print(JSON.stringify(tunnel, null, 2));
  const error = tunnel.last_error;
  const rows = [
    ['URL', tunnel.url],
    ['Status', `${tunnel.status} since ${tunnel.since}`],
    ['Forwards to', `${tunnel.forwards_to} (${tunnel.protocol})`],
    ['Created', tunnel.created_at],
    ...(error ? [['Last error', [error.code, error.message].filter(Boolean).join(' ')]] : []),
    ['Policy', tunnel.policy],
  ];
  print(rows.map(([label, value]) => `${`${label}:`.padEnd(13)}${value}`).join('\n'));
}

/** Closes a tunnel and forgets it. */
export async function deleteTunnel(name: string): Promise<void> {
  await call('DELETE', `/tunnels/${encodeURIComponent(name)}`);
}

async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const settings = loadSettings();
  const base = apiAddress(settings);
  const { status, ok, text } = await ask(base, path, {
    method,
    headers: headers(settings, body !== undefined),
    ...(body !== undefined && { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  const answer = text === '' && ok ? undefined : parseAnswer(base, status, text);
  if (ok) return answer as T;
  throw refusal(base, status, answer);
}

async function ask(base: string, path: string, request: RequestInit) {
  let response: Response | null = null;
  try {
    response = await fetch(base + path, request);
    return { status: response.status, ok: response.ok, text: await response.text() };
  } catch (error) {
    const reason = error instanceof Error && error.cause ? messageOf(error.cause) : messageOf(error);
    throw new OperatorError(describe(request, response, reason, base), UNREACHABLE, { cause: error });
  }
}

function describe({ signal }: RequestInit, response: Response | null, reason: string, base: string): string {
  if (signal?.aborted) {
    return `the agent at ${base} did not answer within ${DEADLINE_MS / 1000} s; device-agent tunnels shows what became of it`;
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

function apiAddress({ api }: Settings): string {
  if (api.port === 0) {
    throw new OperatorError(
      'AGENT_PORT=0 lets the agent choose its port, which is unknown here; set AGENT_PORT to the one that its log names',
      2,
    );
  }
  const wildcard = api.host === '0.0.0.0' || api.host === '::';
  const host = wildcard ? '127.0.0.1' : api.host;
  return `http://${host.includes(':') ? `[${host}]` : host}:${api.port}`;
}

function headers(settings: Settings, hasBody: boolean): Record<string, string> {
  // On loopback the agent asks for none, and while it is not running anyone may listen there to collect it.
  const token = isLoopbackHost(settings.api.host) ? null : apiTokenIfAny(settings);
  return {
    ...(hasBody && { 'content-type': 'application/json' }),
    ...(token !== null && { authorization: `Bearer ${token}` }),
  };
}

function readPolicy(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new OperatorError(`the policy file ${file} cannot be used: ${messageOf(error)}`, 2);
  }
}

function table(head: string[], rows: string[][]): string {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)));
  const line = (cells: string[]) =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [head, ...rows].map(line).join('\n');
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
