import type { Socket } from 'node:net';
import type { ApiError } from '../../../../lib/errors.ts';
import { MalformedMessage } from '../../../../lib/http/response-head.ts';
import type { Log } from '../../../../lib/log/log.ts';
import type { MemoryBudget } from '../../../../lib/memory-budget.ts';
import { turnTime } from '../../../../lib/time/loop-turn.ts';
import type { EdgeCounters } from '../../../metrics/edge-counters.ts';
import { ChunkedDecoder } from '../../http/chunked-decoder.ts';
import type { HttpHandler } from '../../http/client-message.ts';
import { headersTooLong, internalFailure, malformedRequest, requestTimeout } from '../../http/edge-errors.ts';
import { answerError, WITHOUT_REQUEST } from '../../http/error-response.ts';
import { HeaderBlock, HeadersTooLong, hostNameOf } from '../../http/headers.ts';
import type { HttpLimits } from '../../http/http-limits.ts';
import type { IdleClient } from '../../tls/connection-slots.ts';
import { BodyProgress } from '../body-progress.ts';
import { ConnectionMemory, type MemoryHolder, unreadBytes, unsentBytes } from '../client-memory.ts';
import {
  type Http1Head,
  Http1Request,
  hasTooManyLines,
  NO_HEAD,
  PostponedInput,
  parseHttp1Head,
  withoutForeignCookies,
} from './http1-request.ts';
import { Http1Response } from './http1-response.ts';

/** Milliseconds for the client to read the last response, before bytes that it still sends reset the connection. */
const LINGER_MS = 1000;
/** The same, as often as it has sent some meanwhile: many clients read once they have sent their whole request. */
const LINGERS = 30;

/**
 * Milliseconds after which an idle connection ends when the gateway stops. Clients that send a request earlier are told in its
 * response: one that is on its way when the connection ends is lost.
 */
const FINISH_IDLE_MS = 3000;

/** Requests of one connection that are served before others get their turn. */
const REQUESTS_PER_TURN = 4;

const REQUEST_BYTES = 5120;

function ignore(): void {}

function destroyThis(this: Socket): void {
  this.destroy();
}

/**
 * One HTTP/1 connection of a client. Requests are processed one at a time: the next is read once the response to the last
 * has been written, and after a few it is the turn of other connections, so pipelining clients cost no more than others.
 */
export class Http1Client implements IdleClient, MemoryHolder {
  readonly #responses: ConstructorParameters<typeof Http1Response>[2];
  readonly #block: HeaderBlock;
  /** Reused for all bodies of the connection. */
  #chunks: ChunkedDecoder | null = null;
  #request: Http1Request | null = null;
  #response: Http1Response | null = null;
  #body: BodyProgress | null = null;
  #closing = false;
  #isFinishing = false;
  readonly #postponed: PostponedInput;
  readonly #memory: ConnectionMemory;
  #headBytes = 0;
  /** When the connection began to wait for the client, in milliseconds of `performance.now()`. */
  #waitingSince = performance.now();
  /** Bytes that had moved in both directions at the last check, and when they last had. */
  #moved = 0;
  #movedAt = this.#waitingSince;
  /** Whether the headers timeout applies: headers have begun, or none has arrived yet. */
  #headersDue = true;
  #headersBegun = false;
  readonly #onData = (bytes: Buffer): void => {
    if (this.#closing) return;
    if (this.#postponed.length > 0) this.#postpone(bytes);
    else this.#process(bytes);
  };
  readonly #onDrain = (): void => {
    if (this.#response === null) this.#postponed.continue();
    else this.#response.emit('drain');
  };
  /** A half-closed connection counts as closed: hardly any client waits for a response after its end. */
  readonly #onEnd = (): void => {
    // The client still gets the response that has been written.
    if (this.#response === null || this.#response.destroyed) this.#close();
    else this.#abort();
  };
  readonly #onClose = (): void => {
    this.#request?.abort();
    this.#response?.abort();
    this.#done();
  };
  readonly #countMemory = (): void => this.#memory.update(this.countHeld());
  readonly #onTurn = (bytes: Buffer): void => {
    this.#countMemory();
    if (!this.#closing && !this.socket.destroyed) this.#process(bytes);
  };

  constructor(
    private readonly socket: Socket,
    private readonly options: {
      limits: HttpLimits;
      keepAlive: string;
      handler: HttpHandler;
      onDone(client: Http1Client): void;
      memory: MemoryBudget;
      counters: EdgeCounters;
      log: Log;
    },
  ) {
    const { keepAlive, counters } = options;
    this.#responses = { keepAlive, counters, onEnd: () => this.#responseWritten() };
    this.#block = new HeaderBlock(Math.max(options.limits.headerBytes, options.limits.readHeaderBytes));
    this.#postponed = new PostponedInput(socket, this.#onTurn);
    this.#memory = new ConnectionMemory(options.memory, socket.remoteAddress, this);
    socket
      .on('data', this.#onData)
      .on('drain', this.#onDrain)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      // An error is followed by 'close'.
      .on('error', ignore);
    socket.resume();
  }

  get idleSince(): number | null {
    const { destroyed, writableLength } = this.socket;
    const isServed = this.#response !== null && !this.#closing;
    return isServed || writableLength > 0 || destroyed ? null : this.#waitingSince;
  }

  get address(): string | undefined {
    return this.socket.remoteAddress;
  }

  destroy(): void {
    this.socket.destroy();
  }

  finish(): void {
    this.#isFinishing = true;
    const isIdle = performance.now() - this.#waitingSince >= FINISH_IDLE_MS && !this.#headersBegun;
    if (this.#response === null && isIdle) this.#close();
    else if (this.#response?.headersSent === false) this.#response.shouldKeepAlive = false;
  }

  countHeld(): number {
    const { socket } = this;
    const unread = unreadBytes(socket) + this.#postponed.held + (this.#request?.unreadBytes ?? 0);
    const open = this.#request === null ? 0 : REQUEST_BYTES + this.#headBytes;
    return unread + open + this.#block.held + (this.#chunks?.held ?? 0) + unsentBytes(socket);
  }

  checkTime(now: number): void {
    const { headersTimeout, keepAliveTimeout } = this.options.limits;
    this.#memory.settle(this.countHeld());
    if (this.#isIdle(now)) {
      this.#abort();
      return;
    }
    if (this.#closing) return;
    if (this.#request !== null && this.#response !== null) {
      this.#checkRequest(this.#request, this.#response, now);
      return;
    }
    if (now - this.#waitingSince < (this.#headersDue ? headersTimeout : keepAliveTimeout)) return;
    if (this.#headersBegun) this.#reject(requestTimeout());
    else this.#close();
  }

  /** Whether nothing has moved for too long. A timeout of the socket would cost more: each read and write restarts it. */
  #isIdle(now: number): boolean {
    const { bytesRead, bytesWritten } = this.socket;
    if (bytesRead + bytesWritten !== this.#moved) {
      this.#moved = bytesRead + bytesWritten;
      this.#movedAt = now;
    }
    return now - this.#movedAt >= this.options.limits.idleTimeout;
  }

  #checkRequest(request: Http1Request, response: Http1Response, now: number): void {
    const { progressTimeout } = this.options.limits;
    if (now - this.#postponed.fullSince >= progressTimeout) this.#abort();
    if (request.complete) return;
    if (response.destroyed) {
      if (now - this.#waitingSince >= progressTimeout) this.#close();
      return;
    }
    this.#body ??= new BodyProgress(request, response, progressTimeout, now);
    if (this.#body.isStalled(now)) this.#reject(requestTimeout());
  }

  #process(bytes: Buffer): void {
    try {
      const end = this.#read(bytes);
      if (end < bytes.length && !this.#closing) this.#postpone(bytes.subarray(end));
    } catch (error) {
      this.#reject(this.#errorFor(error));
    }
  }

  /** @returns the position after what can be read now */
  #read(bytes: Buffer): number {
    let at = 0;
    for (let begun = 0; at < bytes.length && !this.#closing; ) {
      const request = this.#request;
      if (request !== null && !request.complete) {
        at = this.#readBody(request, bytes, at);
        continue;
      }
      if (request !== null || this.socket.writableNeedDrain) break;
      if (begun === REQUESTS_PER_TURN) {
        this.#postponed.continue();
        break;
      }
      at = this.#readHead(bytes, at);
      begun += 1;
    }
    return at;
  }

  #postpone(bytes: Buffer): void {
    if (this.#request !== null && this.#request.upgrade !== null) this.#postponed.leaveInSocket(bytes);
    else this.#postponed.add(bytes);
    this.#countMemory();
  }

  #readHead(bytes: Buffer, at: number): number {
    const block = this.#block;
    const end = block.take(bytes, at);
    if (!block.complete) {
      if (!this.#headersBegun) this.#headStarted(block.begun);
      this.#countMemory();
      return end;
    }
    // Some clients send an empty line after a body (RFC 9112, 2.2).
    const text = block.text.startsWith('\r\n') ? block.text.slice(2) : block.text;
    block.start('');
    this.#headBytes = text.length;
    if (this.#memory.isAffectedBy(text.length)) this.#countMemory();
    if (text === '') return end;
    const { handler, limits } = this.options;
    const isLong = text.length > limits.headerBytes;
    if (isLong && hasTooManyLines(text)) throw new HeadersTooLong(limits.headerBytes);
    const head = parseHttp1Head(text);
    const { services } = handler;
    if (services?.names.has(hostNameOf(head.headers.host ?? ''))) {
      const passed = isLong ? withoutForeignCookies(head) : text;
      if (passed.length > limits.headerBytes) throw new HeadersTooLong(limits.headerBytes);
      services.accept(this.#handOverUnread(passed, bytes.subarray(end)));
      return bytes.length;
    }
    this.#begin(head);
    return end;
  }

  /** Starts the headers timeout; rejects other protocols at once. */
  #headStarted(text: string): void {
    if (!/^[A-Z\r]/.test(text)) throw new MalformedMessage('not HTTP');
    if (text === '\r\n') return;
    this.#headersBegun = true;
    if (this.#headersDue) return;
    this.#headersDue = true;
    this.#waitingSince = performance.now();
  }

  #begin(head: Http1Head): void {
    const upgrade = head.upgrade === null ? null : { protocol: head.upgrade, accept: () => this.#handOver() };
    const chunks = head.length === null ? this.#decoder() : null;
    const request = new Http1Request(head, this.socket, upgrade, chunks, this.#countMemory);
    const response = new Http1Response(this.socket, head, this.#responses);
    if (this.#isFinishing) response.shouldKeepAlive = false;
    this.#headersBegun = false;
    this.#headersDue = false;
    this.#request = request;
    this.#response = response;
    this.options.handler.onRequest(request, response);
  }

  #decoder(): ChunkedDecoder {
    this.#chunks ??= new ChunkedDecoder(this.options.limits.headerBytes, true);
    this.#chunks.start();
    return this.#chunks;
  }

  #readBody(request: Http1Request, bytes: Buffer, at: number): number {
    const end = request.take(bytes, at);
    if (this.#chunks !== null && this.#chunks.held > 0) this.#countMemory();
    if (request.complete && this.#response?.destroyed) this.#next();
    return end;
  }

  #responseWritten(): void {
    if (!this.#response?.shouldKeepAlive) this.#close();
    else if (this.#request?.complete) this.#next();
    else {
      // Discard the rest of the body, which precedes the next request.
      this.#waitingSince = performance.now();
      this.#request?.body?.resume();
    }
  }

  #next(): void {
    const socket = this.socket;
    this.#request = null;
    this.#response = null;
    this.#body = null;
    this.#headBytes = 0;
    this.#waitingSince = turnTime();
    if (this.#postponed.length > 0) this.#postponed.continue();
    else if (socket.isPaused()) socket.resume();
  }

  #reject(error: ApiError): void {
    if (this.#closing || this.socket.destroyed) return;
    const response = this.#response ?? new Http1Response(this.socket, NO_HEAD, this.#responses);
    this.#response = response;
    response.shouldKeepAlive = false;
    if (response.destroyed) this.#close();
    else if (response.headersSent) this.#abort();
    else answerError(WITHOUT_REQUEST, response, error);
    this.#request?.abort();
  }

  #errorFor(error: unknown): ApiError {
    if (error instanceof HeadersTooLong) return headersTooLong();
    if (error instanceof MalformedMessage) return malformedRequest(error.message);
    this.options.log.error({ err: error }, 'HTTP/1 connection failed unexpectedly');
    return internalFailure();
  }

  /** Ends the connection at once, so that an incomplete response does not look complete. */
  #abort(): void {
    this.#response?.destroy();
    this.socket.destroy();
  }

  /** Ends the connection and lets the client read the last response, which a reset would discard. */
  #close(): void {
    if (this.#closing) return;
    this.#closing = true;
    const socket = this.socket;
    // Called once everything has left, however slowly the client reads.
    socket.end(() => this.#linger(LINGERS));
    socket.resume();
  }

  #linger(times: number): void {
    const { socket } = this;
    const before = socket.bytesRead;
    const timer = setTimeout(() => {
      socket.off('close', stop);
      if (socket.bytesRead > before && times > 1) this.#linger(times - 1);
      else socket.destroy();
    }, LINGER_MS).unref();
    const stop = () => clearTimeout(timer);
    socket.once('close', stop);
  }

  #done(): void {
    this.#memory.release();
    this.options.onDone(this);
  }

  #handOverUnread(head: string, rest: Buffer): Socket {
    const unread = Buffer.concat([Buffer.from(`${head}\r\n`, 'latin1'), rest]);
    const socket = this.#handOver();
    socket.unshift(unread);
    return socket;
  }

  #handOver(): Socket {
    const socket = this.socket;
    socket.off('data', this.#onData).off('drain', this.#onDrain).off('end', this.#onEnd).off('close', this.#onClose);
    this.#done();
    // What listens on must not keep the request that the connection began with.
    return socket.setTimeout(this.options.limits.idleTimeout, destroyThis).pause();
  }
}
