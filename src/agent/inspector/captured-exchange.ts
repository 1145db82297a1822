import type { RequestReport } from '../../agent-protocol/request-report.ts';
import { GrowingBytes } from './parsing/growing-bytes.ts';
import { InvalidResponse, type RequestLine, type StatusLine } from './parsing/message-head.ts';

/** More of a body is not kept. */
export const MAX_BODY = 256 * 1024;

/**
 * `open`: in progress; `aborted`: the connection ended before the exchange did; `failed`: the upstream is unreachable, or
 * what passed is not HTTP/1.1.
 */
export const EXCHANGE_STATES = ['open', 'complete', 'aborted', 'failed'] as const;
export type ExchangeState = (typeof EXCHANGE_STATES)[number];

export const EXCHANGE_KINDS = ['http', 'websocket', 'events', 'upgrade'] as const;
export type ExchangeKind = (typeof EXCHANGE_KINDS)[number];

export const MESSAGE_TYPES = ['text', 'binary', 'close', 'event'] as const;

/** A message of a WebSocket, or a server-sent event. */
export interface ExchangeMessage {
  /** Counts from 1 in its exchange. */
  number: number;
  from: 'client' | 'upstream';
  type: (typeof MESSAGE_TYPES)[number];
  /** Milliseconds since 1970. */
  at: number;
  /** Bytes as sent. */
  size: number;
  data: Buffer;
  truncated: boolean;
  event: string | null;
  /** Why the data is as it was sent, compressed, or missing. */
  error: string | null;
}

export class CapturedMessage<Line> {
  trailers = '';
  /** Bytes of the body as sent, without chunked transfer coding. */
  bodySize = 0;
  /** The body or its beginning; null while there is none. */
  body: GrowingBytes | null = null;
  /** When it ended, in milliseconds of `performance.now()`; null while it has not. */
  endedAt: number | null = null;

  /** @param head the lines of the head, one byte a character */
  constructor(
    readonly line: Line,
    public head: string,
    /** When its head had arrived. */
    readonly beganAt: number,
  ) {}

  get isTruncated(): boolean {
    return this.bodySize > (this.body?.length ?? 0);
  }

  /** @returns bytes of memory that it takes more than before */
  takeBody(bytes: Buffer, from: number, to: number): number {
    this.bodySize += to - from;
    this.body ??= new GrowingBytes(MAX_BODY);
    const before = this.body.capacity;
    this.body.append(bytes, from, to);
    return this.body.capacity - before;
  }
}

/** A request with its response, as they passed between the agent and an upstream. */
export class CapturedExchange {
  response: CapturedMessage<StatusLine> | null = null;
  state: ExchangeState = 'open';
  kind: ExchangeKind = 'http';
  error: string | null = null;
  /** The latest messages; null while there are none. */
  messages: ExchangeMessage[] | null = null;
  messageCount = 0;
  /** What the gateway has reported, when it was found in the store. */
  report: RequestReport | null = null;
  /** When it ended, in milliseconds of `performance.now()`. */
  endedAt: number | null = null;
  /** Bytes of memory that the store counts for it; 0 when the store has forgotten it. */
  held = 0;

  constructor(
    /** Counts from 1 in the process. */
    readonly id: number,
    readonly tunnelId: string,
    readonly request: CapturedMessage<RequestLine>,
    readonly replayOf: number | null,
    readonly startedAt = Date.now(),
  ) {}

  /** Whether it never reached the agent: the gateway has reported it. */
  get isOnlyReported(): boolean {
    return this.report !== null && this.request.head === '';
  }

  /** Of the response that the client got, as far as it is known. */
  get status(): number | null {
    if (this.report?.problem !== undefined) return this.report.status;
    return this.response?.line.status ?? this.report?.status ?? null;
  }

  get isHeld(): boolean {
    return this.held > 0;
  }

  /** @param at in milliseconds of `performance.now()` */
  end(state: Exclude<ExchangeState, 'open'>, error: string | null, at = performance.now()): void {
    if (this.state !== 'open') return;
    this.state = state;
    this.error = error;
    this.endedAt = at;
  }

  /** Takes what the gateway has reported. Where that refused the response, whatever was captured of it reached nobody. */
  reported(report: RequestReport): void {
    this.report = report;
    if (report.problem === undefined) return;
    this.end('failed', null);
    this.state = 'failed';
    this.error = new InvalidResponse(report.problem).message;
  }

  /** Frees what it holds, when it is forgotten. */
  clear(): void {
    this.held = 0;
    this.messages = null;
    for (const message of [this.request, this.response]) {
      if (message === null) continue;
      message.head = '';
      message.body = null;
    }
  }
}

export function endedEarly(by: ExchangeMessage['from'], hasResponse: boolean): string {
  return `the ${by} closed the connection ${hasResponse ? 'before the response was complete' : 'before there was a response'}`;
}
