import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { MemoryBudget } from '../../../../lib/memory-budget.ts';
import { TokenBucket } from '../../../../lib/time/token-bucket.ts';
import type { EdgeCounters } from '../../../metrics/edge-counters.ts';
import type { HttpHandler } from '../../http/client-message.ts';
import { requestTimeout } from '../../http/edge-errors.ts';
import { answerError } from '../../http/error-response.ts';
import type { HttpLimits } from '../../http/http-limits.ts';
import { Http2Code } from '../../http/http2-headers.ts';
import type { IdleClient } from '../../tls/connection-slots.ts';
import { BodyProgress } from '../body-progress.ts';
import { ConnectionMemory, type MemoryHolder } from '../client-memory.ts';
import { Http2Request } from './http2-request.ts';
import { Http2Response } from './http2-response.ts';

/** Streams that the client resets, as in rapid reset attacks (CVE-2023-44487). Leaving a page resets about a hundred. */
const RESETS = { burst: 200, perMs: 0.02 };

/** PING and SETTINGS frames; gRPC sends a PING per round trip to measure bandwidth. */
const CONTROL_FRAMES = { burst: 1000, perMs: 0.1 };

/** Bytes of all bodies in flight to the gateway; those that wait for a slow upstream do not count. */
const CONNECTION_WINDOW = 1_048_576;

/** Requests of one connection that are served before others get their turn. */
const REQUESTS_PER_TURN = 8;

const STREAM_BYTES = 8192;

/** Milliseconds for the client to read the reason why its connection ends. */
const LINGER_MS = 1000;

/** `NGHTTP2_ERR_TOO_MANY_CONTINUATIONS`: a head of more than nine frames, which are 144 KiB. */
const TOO_MANY_CONTINUATIONS = -905;

interface Http2Exchange {
  readonly request: Http2Request;
  readonly response: Http2Response;
  /** Set once the body has not arrived for a while. */
  body?: BodyProgress;
}

export class Http2Client implements IdleClient, MemoryHolder {
  readonly #resets: TokenBucket;
  readonly #controlFrames: TokenBucket;
  readonly #exchanges = new Set<Http2Exchange>();
  readonly #waiting: Http2Exchange[] = [];
  #servedInTurn = 0;
  #idleSince = performance.now();
  /** Bytes of the connection when they last grew, and when that was. */
  #moved = 0;
  #movedAt = this.#idleSince;
  /** Bytes received when the client last answered a PING; null while one is unanswered. */
  #provenAt: number | null = 0;
  #hasRequested = false;
  readonly #memory: ConnectionMemory;
  /** Bytes that the open requests held when they were last counted. */
  #held = 0;
  /** Bytes read, and requests begun, by the last check. */
  #readBefore = 0;
  #begun = 0;
  #begunBefore = 0;
  /** Bytes since the last request: perhaps those of an unfinished head. */
  #unfinished = 0;
  readonly #onTurn = (): void => {
    this.#servedInTurn = 0;
    this.#serveWaiting();
  };

  constructor(
    private readonly session: ServerHttp2Session,
    private readonly socket: TLSSocket,
    private readonly options: {
      limits: HttpLimits;
      memory: MemoryBudget;
      handler: HttpHandler;
      counters: EdgeCounters;
    },
  ) {
    this.#memory = new ConnectionMemory(options.memory, socket.remoteAddress, this);
    this.#resets = new TokenBucket(RESETS, this.#idleSince);
    this.#controlFrames = new TokenBucket(CONTROL_FRAMES, this.#idleSince);
    session.setLocalWindowSize(CONNECTION_WINDOW);
    answerLongHeads(session, socket);
    // Otherwise a half-closed socket, useless in HTTP/2, would stay open with all its requests.
    socket.on('end', () => session.destroy());
    session
      // An error is followed by 'close'.
      .on('error', () => {})
      .once('close', () => this.#memory.release())
      .on('ping', () => this.#countControlFrame())
      .on('remoteSettings', () => this.#countControlFrame())
      .on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#serve(stream, headers, raw),
      );
  }

  get idleSince(): number | null {
    return this.#exchanges.size > 0 || this.socket.destroyed ? null : this.#idleSince;
  }

  get address(): string | undefined {
    return this.socket.remoteAddress;
  }

  destroy(): void {
    this.socket.destroy();
  }

  finish(): void {
    this.session.close();
  }

  /**
   * Ends requests that the client does not send, responses that it does not read, and a connection that has carried no
   * request for too long or whose client is gone. Bytes that trickle in do not count as use.
   */
  checkTime(now: number): void {
    const { headersTimeout, keepAliveTimeout } = this.options.limits;
    this.#watchHead();
    this.#memory.settle(this.countHeld());
    if (this.#exchanges.size > 0) {
      for (const exchange of this.#exchanges) this.#checkExchange(exchange, now);
      this.#checkPresence(now);
    } else if (now - this.#idleSince >= (this.#hasRequested ? keepAliveTimeout : headersTimeout)) {
      this.#end(Http2Code.noError);
    }
  }

  countHeld(): number {
    this.#held = 0;
    let responses = 0;
    for (const { request, response } of this.#exchanges) {
      request.countUnread();
      this.#held += STREAM_BYTES + request.headBytes + request.unread;
      responses += response.unread;
    }
    return this.#held + responses + this.#unfinished;
  }

  /** nghttp2 keeps the head of a request to itself until it is complete. */
  #watchHead(): void {
    const { bytesRead } = this.socket;
    if (this.#begun !== this.#begunBefore) this.#unfinished = 0;
    else
      this.#unfinished = Math.min(this.#unfinished + bytesRead - this.#readBefore, this.options.limits.readHeaderBytes);
    this.#begunBefore = this.#begun;
    this.#readBefore = bytesRead;
  }

  #hold(bytes: number): void {
    this.#held += bytes;
    this.#memory.update(this.#held + this.#unfinished);
  }

  #checkExchange(exchange: Http2Exchange, now: number): void {
    const { request, response } = exchange;
    const { progressTimeout } = this.options.limits;
    if (response.isStalled(progressTimeout, now)) response.destroy();
    if (request.complete || request.body === null) return;
    exchange.body ??= new BodyProgress(request, response, progressTimeout, now);
    if (!exchange.body.isStalled(now)) return;
    if (response.headersSent) response.destroy(Http2Code.cancel);
    else answerError(request, response, requestTimeout());
  }

  /**
   * Pings the client when bytes of it have arrived since its last answer, or when it has been silent for long. After some
   * errors of a client, nghttp2 stops reading without a word, which hides the end of the connection, too. Responses may take
   * as long as they need, as streaming gRPC calls do.
   */
  #checkPresence(now: number): void {
    const { idleTimeout, pingTimeout } = this.options.limits;
    const { session, socket } = this;
    const moved = socket.bytesRead + socket.bytesWritten;
    if (moved !== this.#moved) {
      this.#moved = moved;
      this.#movedAt = now;
    }
    if (this.#provenAt === null) {
      if (now - this.#movedAt >= pingTimeout) socket.destroy();
      return;
    }
    if (socket.bytesRead === this.#provenAt && now - this.#movedAt < idleTimeout) return;
    this.#provenAt = null;
    this.#movedAt = now;
    const sent = session.ping(() => {
      this.#provenAt = socket.bytesRead;
    });
    if (!sent) socket.destroy();
  }

  #serve(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[]): void {
    const { counters } = this.options;
    const response = new Http2Response(stream, headers[':method'] === 'HEAD', counters);
    const request = new Http2Request(stream, headers, raw, this.socket, (bytes) => this.#hold(bytes));
    const exchange = { request, response };
    this.#exchanges.add(exchange);
    this.#hasRequested = true;
    this.#begun += 1;
    this.#hold(STREAM_BYTES + request.headBytes);
    stream.on('error', () => {}).on('close', () => this.#closed(stream, exchange));
    if (request.mayBeEmpty) request.whenBegun(() => this.#serveNext(exchange));
    else this.#serveNext(exchange);
  }

  #serveNext(exchange: Http2Exchange): void {
    this.#waiting.push(exchange);
    if (this.#waiting.length === 1) this.#serveWaiting();
  }

  #serveWaiting(): void {
    while (this.#servedInTurn < REQUESTS_PER_TURN) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      if (this.#servedInTurn === 0) setImmediate(this.#onTurn);
      this.#servedInTurn += 1;
      if (!next.response.destroyed) this.options.handler.onRequest(next.request, next.response);
    }
  }

  #closed(stream: ServerHttp2Stream, exchange: Http2Exchange): void {
    const now = performance.now();
    this.#exchanges.delete(exchange);
    this.#hold(-STREAM_BYTES - exchange.request.headBytes - exchange.request.unread);
    this.#idleSince = now;
    if (stream.rstCode !== Http2Code.noError && !this.#resets.tryTake(now)) this.#end(Http2Code.enhanceYourCalm);
  }

  #countControlFrame(): void {
    if (!this.#controlFrames.tryTake(performance.now())) this.#end(Http2Code.enhanceYourCalm);
  }

  #end(code: number): void {
    const socket = this.socket;
    this.session.destroy(undefined, code);
    const timer = setTimeout(() => socket.destroy(), LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
  }
}

/**
 * Browsers with too many cookies come again over HTTP/1.1, where they get a page that says so. nghttp2 reads no more of such a head,
 * and Node would report an internal error.
 */
function answerLongHeads(session: ServerHttp2Session, socket: TLSSocket): void {
  const { destroy } = session;
  let isAnswered = false;
  session.destroy = (error?: Error & { errno?: number }, code?: number) => {
    if (error?.errno !== TOO_MANY_CONTINUATIONS) return destroy.call(session, error, code);
    // It comes with each further piece of the head.
    if (isAnswered) return;
    isAnswered = true;
    session.goaway(Http2Code.http11Required);
    // The browser is still sending: what nobody reads would reset the connection before it has read this.
    const timer = setTimeout(() => destroy.call(session, undefined, Http2Code.http11Required), LINGER_MS).unref();
    socket.once('close', () => clearTimeout(timer));
  };
}
