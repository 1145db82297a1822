import type { Log } from '../../lib/log/log.ts';
import { MemoryBudget } from '../../lib/memory-budget.ts';
import { type ExchangeMessage, endedEarly } from './captured-exchange.ts';
import { maskTarget } from './masking/mask-text.ts';
import {
  afterRequestHead,
  afterResponseHead,
  type Following,
  headFacts,
  InvalidResponse,
  invalidBeginning,
  ParseFailure,
  requestLineOf,
  responseFactsOf,
} from './parsing/message-head.ts';
import { MessageReader } from './parsing/message-reader.ts';

/** Of all connections together, for heads that have not arrived whole. */
const MAX_PENDING_BYTES = 1024 * 1024;
/** Requests on one connection that wait for their response. More of them are an attack. */
const MAX_PIPELINED = 1_000;
const MAX_PATH = 2_000;

interface Request {
  method: string;
  path: string;
  beganAt: number;
  status: number | null;
  request_bytes: number;
  response_bytes: number;
}

/** Logs a line for each request of HTTP/1.1 that passes between the agent and upstreams. */
export class RequestLog {
  readonly #pending = new MemoryBudget(MAX_PENDING_BYTES);

  constructor(
    private readonly log: Log,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Reads a connection to an upstream. */
  connection(url: () => string): ConnectionRequests {
    return new ConnectionRequests(this.#pending, this.now, (request, reason) => {
      const { method, path, status, request_bytes, response_bytes, beganAt } = request;
      const duration_ms = Math.round(this.now() - beganAt);
      this.log.info(
        { url: url(), method, path, status, duration_ms, request_bytes, response_bytes, reason },
        'upstream request',
      );
    });
  }
}

/** Finds the requests of one connection. What it does not understand ends that, but not the connection. */
class ConnectionRequests {
  /** Those whose response has not ended, in the order of their requests. */
  readonly #unanswered: Request[] = [];
  #requesting: Request | null = null;
  readonly #requests: MessageReader;
  readonly #responses: MessageReader;
  #isOver = false;

  constructor(
    memory: MemoryBudget,
    private readonly now: () => number,
    private readonly ended: (request: Request, reason?: string) => void,
  ) {
    this.#requests = new MessageReader(
      {
        head: (text) => this.#requestHead(text),
        body: (_, from, to) => this.#add('request_bytes', this.#requesting, to - from),
        end: () => {},
        raw: (bytes) => this.#add('request_bytes', this.#unanswered[0], bytes.length),
      },
      memory,
    );
    this.#responses = new MessageReader(
      {
        head: (text) => this.#responseHead(text),
        body: (_, from, to) => this.#add('response_bytes', this.#unanswered[0], to - from),
        end: () => this.#responseEnds(),
        raw: (bytes) => this.#add('response_bytes', this.#unanswered[0], bytes.length),
      },
      memory,
    );
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  fromClient(bytes: Buffer): void {
    this.#read(this.#requests, bytes);
  }

  toClient(bytes: Buffer): void {
    this.#read(this.#responses, bytes);
  }

  failed(reason: string): void {
    this.#end(reason);
  }

  closed(inOrder: boolean, by: ExchangeMessage['from']): void {
    const invalid = invalidBeginning(this.#responses.partialHead);
    if (invalid) this.#end(invalid.message);
    if (inOrder && !this.#isOver) this.#responses.finish();
    const status = this.#unanswered[0]?.status ?? null;
    this.#end((inOrder || by === 'client') && status === 101 ? undefined : endedEarly(by, status !== null));
  }

  #read(reader: MessageReader, bytes: Buffer): void {
    if (this.#isOver) return;
    try {
      reader.read(bytes);
    } catch (error) {
      if (!(error instanceof ParseFailure)) throw error;
      this.#end(error instanceof InvalidResponse ? error.message : `not read further: ${error.message}`);
    }
  }

  #requestHead(text: string): Following {
    const { method, target } = requestLineOf(text);
    if (this.#unanswered.length >= MAX_PIPELINED) throw new ParseFailure('too many requests without a response');
    // Terminals must not get control characters.
    const path = maskTarget(target.slice(0, MAX_PATH)).replace(/[^\x21-\x7e]/g, encodeURIComponent);
    const counted = { status: null, request_bytes: 0, response_bytes: 0 };
    this.#requesting = { method, path, beganAt: this.now(), ...counted };
    this.#unanswered.push(this.#requesting);
    return afterRequestHead(headFacts(text));
  }

  #responseHead(text: string): Following {
    const { line, facts } = responseFactsOf(text);
    const { status } = line;
    const [request] = this.#unanswered;
    if (request === undefined) throw new ParseFailure('a response without a request');
    const following = afterResponseHead(request.method, status, facts);
    if (following !== 'head') request.status = status;
    if (following === 'raw') this.#requests.becomeRaw();
    return following;
  }

  #responseEnds(): void {
    const request = this.#unanswered.shift();
    if (request) this.ended(request);
  }

  #add(what: 'request_bytes' | 'response_bytes', request: Request | null | undefined, count: number): void {
    if (request) request[what] += count;
  }

  #end(reason: string | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const request of this.#unanswered) this.ended(request, reason);
    this.#unanswered.length = 0;
    this.#requests.release();
    this.#responses.release();
  }
}
