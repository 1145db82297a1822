import type { CaptureStore } from './capture-store.ts';
import type { CaptureTime } from './capture-time.ts';
import { type CapturedExchange, CapturedMessage, type ExchangeMessage, endedEarly } from './captured-exchange.ts';
import { EventStreamReader } from './parsing/event-stream-reader.ts';
import {
  afterRequestHead,
  afterResponseHead,
  checkSwitch,
  type Following,
  fieldValue,
  type HeaderField,
  headerFields,
  headFacts,
  InvalidResponse,
  invalidBeginning,
  ParseFailure,
  requestLineOf,
  responseFactsOf,
} from './parsing/message-head.ts';
import { MessageReader } from './parsing/message-reader.ts';
import { WebSocketInflater, type WebSocketMessage, WebSocketReader } from './parsing/web-socket-reader.ts';

/** Requests on one connection that wait for their response. More of them are an attack. */
const MAX_PIPELINED = 1_000;

/**
 * Captures the exchanges of one connection to an upstream. It only looks: nothing that passes changes or waits, and what it
 * does not understand ends the capture of this connection alone.
 */
export class ConnectionCapture {
  /** Those whose response has not ended, in the order of their requests. */
  readonly #unanswered: CapturedExchange[] = [];
  #requesting: CapturedExchange | null = null;
  readonly #requests: MessageReader;
  readonly #responses: MessageReader;
  #events: EventStreamReader | null = null;
  /** After an upgrade: readers of both directions, if it is one to a WebSocket. */
  #upgraded: { exchange: CapturedExchange; client: WebSocketReader | null; upstream: WebSocketReader | null } | null =
    null;
  #isOver = false;
  /** When the bytes arrived that are being read. */
  #now = 0;
  #latest: CapturedExchange | null = null;

  constructor(
    private readonly options: {
      tunnelId: string;
      store: CaptureStore;
      time: CaptureTime;
      replayOf?: number | null;
      onRequest?: (exchange: CapturedExchange) => void;
      /** Called once, when nothing more is captured. */
      onOver?: (capture: ConnectionCapture) => void;
    },
  ) {
    const { store } = options;
    this.#requests = new MessageReader(
      {
        head: (text) => this.#requestHead(text),
        body: (bytes, from, to) => this.#requestBody(bytes, from, to),
        end: (trailers) => this.#requestEnds(trailers),
        raw: (bytes) => this.#upgradedData('client', bytes),
      },
      store,
    );
    this.#responses = new MessageReader(
      {
        head: (text) => this.#responseHead(text),
        body: (bytes, from, to) => this.#responseBody(bytes, from, to),
        end: (trailers) => this.#responseEnds(trailers),
        raw: (bytes) => this.#upgradedData('upstream', bytes),
      },
      store,
    );
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get latest(): CapturedExchange | null {
    return this.#latest;
  }

  fromClient(bytes: Buffer): void {
    this.#read(this.#requests, bytes);
  }

  toClient(bytes: Buffer): void {
    this.#read(this.#responses, bytes);
  }

  failed(reason: string): void {
    this.#end('failed', `upstream unreachable: ${reason}`);
  }

  /**
   * @param inOrder whether the upstream has sent its end, rather than that the connection broke
   * @param by who ended it first
   */
  closed(inOrder: boolean, by: ExchangeMessage['from']): void {
    this.#now = performance.now();
    const invalid = invalidBeginning(this.#responses.partialHead);
    if (invalid) this.#end('failed', invalid.message);
    if (inOrder && !this.#isOver) this.#responses.finish();
    if (inOrder && this.#upgraded) this.#finish(this.#upgraded.exchange);
    const open = this.#unanswered[0];
    // Only its client ends a stream of events or images.
    if (by === 'client' && open?.response && isEndless(open)) this.#finish(open);
    this.#end('aborted', endedEarly(by, Boolean(open?.response)));
  }

  /** Ends the capture; the connection goes on. */
  detach(): void {
    this.#end('aborted', 'inspection was switched off meanwhile');
  }

  #read(reader: MessageReader, bytes: Buffer): void {
    if (this.#isOver) return;
    this.#now = performance.now();
    this.options.time.begin();
    try {
      reader.read(bytes);
      this.#checkTime();
    } catch (error) {
      const reason = error instanceof ParseFailure ? error.message : 'unexpected error of the inspector';
      if (this.#unanswered.length === 0 && reader === this.#requests) this.#addUnreadable(bytes);
      this.#end('failed', error instanceof InvalidResponse ? reason : `not inspected: ${reason}`);
    }
  }

  /** Call this for each part of what arrives at once: there may be thousands. */
  #checkTime(): void {
    if (this.options.time.step() === 'overdrawn') throw new ParseFailure('it takes too much processor time');
  }

  /** Shows that something arrived which is no request. */
  #addUnreadable(bytes: Buffer): void {
    const line = { method: '?', target: '', httpVersion: '' };
    const request = new CapturedMessage(line, '', performance.now());
    const exchange = this.options.store.add(this.options.tunnelId, request, null);
    this.options.store.takeBody(exchange, request, bytes.subarray(0, 1_024));
    this.#unanswered.push(exchange);
  }

  #requestHead(text: string): Following {
    const { store, tunnelId, replayOf = null } = this.options;
    const line = requestLineOf(text);
    if (this.#unanswered.length >= MAX_PIPELINED) throw new ParseFailure('too many requests without a response');
    const exchange = store.add(tunnelId, new CapturedMessage(line, text, this.#now), replayOf);
    this.#requesting = exchange;
    this.#latest = exchange;
    this.#unanswered.push(exchange);
    this.options.onRequest?.(exchange);
    return afterRequestHead(headFacts(text));
  }

  #requestBody(bytes: Buffer, from: number, to: number): void {
    const exchange = this.#requesting;
    this.#checkTime();
    if (exchange !== null) this.options.store.takeBody(exchange, exchange.request, bytes, from, to);
  }

  #requestEnds(trailers: string): void {
    const exchange = this.#requesting;
    if (exchange === null) return;
    this.#requesting = null;
    exchange.request.endedAt = this.#now;
    this.options.store.takeTrailers(exchange, exchange.request, trailers);
  }

  #responseHead(text: string): Following {
    const { line, facts } = responseFactsOf(text);
    const exchange = this.#unanswered[0];
    if (exchange === undefined) throw new ParseFailure('a response without a request');
    const { status } = line;
    if (status === 101 && exchange.isHeld) checkSwitch(exchange.request.head);
    if (status < 200 && status !== 101) return 'head';
    this.options.store.takeResponse(exchange, new CapturedMessage(line, text, this.#now));
    const following = afterResponseHead(exchange.request.line.method, status, facts);
    if (following === 'raw') this.#upgrade(exchange, facts.upgrade, text);
    else if (following !== 0) this.#beginEvents(exchange, text);
    return following;
  }

  #responseBody(bytes: Buffer, from: number, to: number): void {
    const exchange = this.#unanswered[0];
    if (!exchange?.response) return;
    this.#checkTime();
    this.options.store.takeBody(exchange, exchange.response, bytes, from, to);
    this.#events?.read(bytes.subarray(from, to));
  }

  #responseEnds(trailers: string): void {
    const exchange = this.#unanswered.shift();
    if (!exchange?.response) return;
    this.#events?.release();
    this.#events = null;
    this.options.store.takeTrailers(exchange, exchange.response, trailers);
    this.#finish(exchange);
  }

  #finish(exchange: CapturedExchange): void {
    exchange.end('complete', null, this.#now);
    if (exchange.response) exchange.response.endedAt = exchange.endedAt;
    this.options.store.ended(exchange);
  }

  #beginEvents(exchange: CapturedExchange, head: string): void {
    // Searched before it is parsed: nearly all responses are something else.
    if (!/text\/event-stream/i.test(head)) return;
    const fields = headerFields(head);
    if (!/^text\/event-stream\b/i.test(fieldValue(fields, 'content-type') ?? '')) return;
    exchange.kind = 'events';
    // Compressed, they cannot be read as they come.
    if (!/^(?:identity)?$/i.test(fieldValue(fields, 'content-encoding') ?? '')) return;
    const { store } = this.options;
    this.#events = new EventStreamReader(store, ({ event, data, size, truncated }) => {
      this.#checkTime();
      const message = { from: 'upstream', type: 'event', size, truncated, event, error: null } as const;
      store.takeMessage(exchange, { ...message, data: Buffer.from(data) });
    });
  }

  #upgrade(exchange: CapturedExchange, to: string | null, head: string): void {
    const isWebSocket = to === 'websocket';
    exchange.kind = isWebSocket ? 'websocket' : 'upgrade';
    const fields = isWebSocket ? headerFields(head) : [];
    this.#upgraded = {
      exchange,
      client: isWebSocket ? this.#webSocketReader(exchange, 'client', fields) : null,
      upstream: isWebSocket ? this.#webSocketReader(exchange, 'upstream', fields) : null,
    };
    this.#requests.becomeRaw();
  }

  #webSocketReader(
    exchange: CapturedExchange,
    from: 'client' | 'upstream',
    head: readonly HeaderField[],
  ): WebSocketReader {
    const { store, time } = this.options;
    const extensions = fieldValue(head, 'sec-websocket-extensions') ?? '';
    const forgets = from === 'client' ? 'client_no_context_takeover' : 'server_no_context_takeover';
    const inflater = /\bpermessage-deflate\b/i.test(extensions)
      ? new WebSocketInflater(!extensions.toLowerCase().includes(forgets), store, () => time.step() === 'some')
      : null;
    const onMessage = (message: WebSocketMessage) => {
      this.#checkTime();
      store.takeMessage(exchange, { ...message, from, event: null });
    };
    return new WebSocketReader(inflater, store, onMessage);
  }

  #upgradedData(from: 'client' | 'upstream', bytes: Buffer): void {
    const upgraded = this.#upgraded;
    if (upgraded === null) return;
    const { exchange } = upgraded;
    const message = from === 'client' ? exchange.request : exchange.response;
    if (message) message.bodySize += bytes.length;
    upgraded[from]?.read(bytes);
  }

  /** Ends all that is open, and gives back the memory of what has not arrived whole. */
  #end(state: 'aborted' | 'failed', reason: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#requests.partialHead !== '' && this.#unanswered.length === 0) this.#addUnreadable(Buffer.alloc(0));
    for (const exchange of this.#unanswered) {
      exchange.end(state, reason);
      this.options.store.changed(exchange);
    }
    this.#unanswered.length = 0;
    this.#requests.release();
    this.#responses.release();
    this.#events?.release();
    this.#upgraded?.client?.release();
    this.#upgraded?.upstream?.release();
    this.options.onOver?.(this);
  }
}

function isEndless({ kind, response }: CapturedExchange): boolean {
  return kind !== 'http' || /^content-type:[ \t]*multipart\/x-mixed-replace\b/im.test(response?.head ?? '');
}
