import type { Socket } from 'node:net';
import { z } from 'zod';
import { ApiError, messageOf } from '../../lib/errors.ts';
import { CONNECTION_HEADERS } from '../../lib/http/header-fields.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import { bodyContent } from './body-content.ts';
import type { CapturedExchange, ExchangeMessage } from './captured-exchange.ts';
import type { ConnectionCapture } from './connection-capture.ts';
import type { HeaderField } from './parsing/message-head.ts';
import { shownExchange } from './shown-exchange.ts';

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const MAX_HEADERS = 200;

const Header = z.strictObject({
  name: z
    .string()
    .max(256)
    .regex(TOKEN, 'must be the name of a header')
    .describe('The name of the header, in any case.'),
  value: z
    .string()
    .max(65_536)
    .refine((value) => !/[\r\n\0]/.test(value), 'must be one line')
    .describe('One line. What is still masked stands for the captured value.'),
});

const Body = z.union(
  [
    z.strictObject({ text: z.string().describe('The body as text, which is sent as UTF-8.') }),
    z.strictObject({ base64: z.base64().describe('The bytes of the body, in base64.') }),
  ],
  { error: 'must be {"text": "…"}, {"base64": "…"} or null' },
);

/** Body of `POST …/requests/{id}/replay`: what to change. */
export const ReplayRequest = z.strictObject({
  method: z.string().max(64).regex(TOKEN, 'must be a method of HTTP').optional().describe('Replaces the method.'),
  path: z
    .string()
    .max(65_536)
    .regex(/^\/[\x21-\x7e]*$/, 'must begin with / and be percent-encoded')
    .optional()
    .describe('Replaces path and query.'),
  headers: z.array(Header).max(MAX_HEADERS).optional().describe('Replaces all headers.'),
  body: Body.nullable().optional().describe('Replaces the body; null: no body.'),
});
export type ReplayRequest = z.infer<typeof ReplayRequest>;

/** A request as it goes to the upstream. */
interface RequestBytes {
  head: Buffer;
  body: Buffer;
}

const NO_BODY = Buffer.alloc(0);

/** Whether an exchange can be repeated as it was. */
export function canReplay(exchange: CapturedExchange): boolean {
  return isRepeatable(exchange) && exchange.request.endedAt !== null && !exchange.request.isTruncated;
}

function isRepeatable({ kind, isHeld, request }: CapturedExchange): boolean {
  return isHeld && request.head !== '' && (kind === 'http' || kind === 'events') && request.line.method !== 'CONNECT';
}

/**
 * The request that repeats an exchange. What still equals its masked form stands for what was captured.
 *
 * @throws {AgentError} 409 for an exchange that cannot be repeated
 */
export async function requestBytes(exchange: CapturedExchange, change: ReplayRequest): Promise<RequestBytes> {
  if (exchange.isOnlyReported) throw notReplayable('the agent has only what the gateway reports of it');
  if (!isRepeatable(exchange)) {
    throw notReplayable('the connection was upgraded, or is no longer captured: only plain requests can be replayed');
  }
  if (change.body === undefined && !canReplay(exchange)) {
    throw notReplayable('the body was not captured whole: send a body');
  }
  const captured = shownExchange(exchange, true);
  const masked = shownExchange(exchange, false);
  const path = change.path === undefined || change.path === masked.path ? captured.path : change.path;
  const headers = change.headers
    ? change.headers.map((field) => unmasked(field, masked.requestHeaders, captured.requestHeaders))
    : captured.requestHeaders;
  const { body, isDecoded } = await bodyBytes(exchange, change.body, captured.requestHeaders);
  const sent = headers.filter(({ name }) => {
    const lower = name.toLowerCase();
    return !CONNECTION_HEADERS.has(lower) && !(isDecoded && lower === 'content-encoding');
  });
  const method = change.method ?? exchange.request.line.method;
  const lines = [
    `${method} ${path} HTTP/1.1`,
    ...(hasHost(sent) ? [] : captured.requestHeaders.filter(isHost)).map(lineOf),
    ...sent.map(lineOf),
    ...(body.length > 0 || !/^(?:GET|HEAD|OPTIONS)$/.test(method) ? [`Content-Length: ${body.length}`] : []),
    'Connection: close',
  ];
  return { head: Buffer.from(`${lines.join('\r\n')}\r\n\r\n`), body };
}

function unmasked(field: HeaderField, masked: readonly HeaderField[], captured: readonly HeaderField[]): HeaderField {
  const name = field.name.toLowerCase();
  const at = masked.findIndex((each) => each.name.toLowerCase() === name && each.value === field.value);
  return captured[at] ?? field;
}

async function bodyBytes(
  exchange: CapturedExchange,
  change: ReplayRequest['body'],
  headers: readonly HeaderField[],
): Promise<{ body: Buffer; isDecoded: boolean }> {
  const { request } = exchange;
  const captured = request.body ? Buffer.from(request.body.bytes) : NO_BODY;
  if (change === undefined) return { body: captured, isDecoded: false };
  if (change === null) return { body: NO_BODY, isDecoded: true };
  if ('base64' in change) return { body: Buffer.from(change.base64, 'base64'), isDecoded: true };
  const shown = await bodyContent(request, headers, false);
  if (shown?.text === change.text && !shown.truncated) return { body: captured, isDecoded: false };
  return { body: Buffer.from(change.text), isDecoded: true };
}

const lineOf = ({ name, value }: HeaderField): string => `${name}: ${value}`;
const isHost = ({ name }: HeaderField): boolean => name.toLowerCase() === 'host';
const hasHost = (fields: readonly HeaderField[]): boolean => fields.some(isHost);

function notReplayable(problem: string): AgentError {
  return new AgentError('ERR_AGENT_NOT_REPLAYABLE', `cannot replay the request: ${problem}`);
}

export interface ReplayOptions {
  request: RequestBytes;
  /** Connects to the upstream as it is checked now. */
  connect: () => Promise<Socket>;
  capture: ConnectionCapture;
}

/** How long a replay waits for the end of its response. */
const DEADLINE_MS = 30_000;
const MAX_AT_ONCE = 8;

/** Sends requests to upstreams, past the gateway. */
export class Replays {
  #running = 0;

  /**
   * Sends a request and waits for the end of its response.
   *
   * @returns the exchange; it tells when the upstream is unreachable, or did not answer in time
   * @throws {ApiError} 400 when the upstream is not allowed, 503 when too many replays are under way
   */
  async send(options: ReplayOptions): Promise<CapturedExchange> {
    if (this.#running >= MAX_AT_ONCE) {
      const problem = `too many replays: at most ${MAX_AT_ONCE} at a time; retry later`;
      throw new AgentError('ERR_AGENT_BUSY', problem, { retryAfter: RETRY_AFTER_S });
    }
    this.#running++;
    try {
      return await this.#send(options);
    } finally {
      this.#running--;
    }
  }

  async #send({ request, connect, capture }: ReplayOptions): Promise<CapturedExchange> {
    let socket: Socket | null = null;
    let failure: unknown = null;
    try {
      socket = await connect();
    } catch (error) {
      if (error instanceof ApiError) throw error;
      failure = error;
    }
    capture.fromClient(request.head);
    if (request.body.length > 0) capture.fromClient(request.body);
    const exchange = capture.latest;
    if (exchange === null)
      throw new AgentError('ERR_AGENT_NOT_REPLAYABLE', 'cannot replay the request: it is not valid');
    if (socket === null) capture.failed(messageOf(failure));
    else await this.#exchange(socket, request, capture, exchange);
    return exchange;
  }

  async #exchange(
    socket: Socket,
    { head, body }: RequestBytes,
    capture: ConnectionCapture,
    exchange: CapturedExchange,
  ): Promise<void> {
    let by: ExchangeMessage['from'] = 'upstream';
    const timer = setTimeout(() => {
      by = 'client';
      socket.destroy();
    }, DEADLINE_MS);
    await new Promise<void>((resolve) => {
      socket.on('data', (bytes: Buffer) => {
        capture.toClient(bytes);
        if (exchange.state !== 'open') socket.destroy();
      });
      socket.on('end', () => socket.destroy());
      socket.on('error', () => socket.destroy());
      socket.on('close', resolve);
      socket.write(head);
      socket.write(body);
    });
    clearTimeout(timer);
    capture.closed(socket.readableEnded, by);
  }
}
