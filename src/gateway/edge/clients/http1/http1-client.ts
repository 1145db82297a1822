import type { Socket } from 'node:net';
import type { ApiError } from '../../../../lib/errors.ts';
import type { Log } from '../../../../lib/log.ts';
import type { TrafficCounters } from '../../../metrics/traffic-counters.ts';
import { ChunkedDecoder } from '../../http/chunked-decoder.ts';
import type { ClientRequest, ClientResponse } from '../../http/client-message.ts';
import { headersTooLong, internalFailure, malformedRequest, requestTimeout } from '../../http/edge-errors.ts';
import { answerError, WITHOUT_REQUEST } from '../../http/error-response.ts';
import { HeaderBlock } from '../../http/header-block.ts';
import { HeadersTooLong, MalformedMessage } from '../../http/header-fields.ts';
import type { HttpLimits } from '../../http/http-limits.ts';
import type { IdleClient } from '../idle-clients.ts';
import { type Http1Head, NO_HEAD, parseHttp1Head } from './http1-head.ts';
import { Http1Request } from './http1-request.ts';
import { Http1Response, type Http1ResponseOptions } from './http1-response.ts';

/** Milliseconds that a client has to read the end of the last response, before what it still sends resets the connection. */
const FAREWELL = 1000;

/** Serves the requests of a connection. */
export interface Http1Handler {
  /** Answers a request; throws nothing. */
  onRequest(req: ClientRequest, res: ClientResponse): void;
  /** The gateway's own services, which take over connections that request one of their hosts. */
  services?: {
    /** @param host value of a Host header */
    serves(host: string | undefined): boolean;
    /** Takes over a connection whose next request is still unread. */
    accept(socket: Socket): void;
  };
}

export interface Http1ClientOptions {
  limits: HttpLimits;
  /** What is said on connections that are kept: headers with their CR LF. */
  keepAlive: string;
  handler: Http1Handler;
  /** Told when the connection is over, or HTTP is no longer spoken on it. */
  onOver(client: Http1Client): void;
  counters: TrafficCounters;
  log: Log;
}

/**
 * One HTTP/1 connection of a public client. Requests are taken one at a time: the next is read when the response to the
 * last has been written, so that a client which sends many ahead costs no more than others.
 */
export class Http1Client implements IdleClient {
  readonly #socket: Socket;
  readonly #options: Http1ClientOptions;
  readonly #responses: Http1ResponseOptions;
  readonly #block: HeaderBlock;
  /** For one body after another. */
  #chunks: ChunkedDecoder | null = null;
  /** The request under way; null between two. */
  #request: Http1Request | null = null;
  #response: Http1Response | null = null;
  #closing = false;
  /** Since when the client is waited for, in milliseconds of `performance.now()`. */
  #since = performance.now();
  /** Whether headers have to arrive, for they have begun or are the first. */
  #expected = true;
  /** Whether a part of them has. */
  #begun = false;

  /** Takes over a connection. */
  constructor(socket: Socket, options: Http1ClientOptions) {
    this.#socket = socket;
    this.#options = options;
    const { keepAlive, counters } = options;
    this.#responses = { keepAlive, counters, onEnd: () => this.#settle() };
    this.#block = new HeaderBlock(options.limits.headerBytes);
    socket
      .on('data', this.#onData)
      .on('drain', this.#onDrain)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      // An error ends in 'close', which all here wait for.
      .on('error', () => {})
      .setTimeout(options.limits.idleTimeout, () => this.#breakOff());
    socket.resume();
  }

  get idleSince(): number | null {
    const { destroyed, writableLength } = this.#socket;
    return this.#response !== null || writableLength > 0 || destroyed ? null : this.#since;
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Ends a connection whose headers are overdue, or that has carried no request for too long. */
  checkTime(now: number): void {
    const { headersTimeout, keepAliveTimeout } = this.#options.limits;
    if (this.#response !== null || this.#closing) return;
    if (now - this.#since < (this.#expected ? headersTimeout : keepAliveTimeout)) return;
    if (this.#begun) this.#refuse(requestTimeout());
    else this.#close();
  }

  readonly #onData = (bytes: Buffer): void => {
    try {
      this.#read(bytes);
    } catch (error) {
      this.#refuse(this.#explain(error));
    }
  };

  readonly #onDrain = (): void => {
    if (this.#response === null) this.#socket.resume();
    else this.#response.emit('drain');
  };

  /** Who sends no more has gone, as far as can be told: few clients wait for an answer after that. */
  readonly #onEnd = (): void => {
    // What has been answered already is still read, as from a client that is done with the connection.
    if (this.#response === null || this.#response.destroyed) this.#close();
    else this.#breakOff();
  };

  readonly #onClose = (): void => {
    this.#request?.breakOff();
    this.#response?.breakOff();
    this.#options.onOver(this);
  };

  #read(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && !this.#closing; ) {
      const request = this.#request;
      if (request === null && !this.#socket.writableNeedDrain) at = this.#readHead(bytes, at);
      else if (request !== null && !request.complete) at = this.#readBody(request, bytes, at);
      else {
        // What comes next has to wait for the response, or for the client to read the last.
        this.#socket.pause();
        this.#socket.unshift(at === 0 ? bytes : bytes.subarray(at));
        return;
      }
    }
  }

  #readHead(bytes: Buffer, at: number): number {
    const block = this.#block;
    const end = block.take(bytes, at);
    if (!block.complete) {
      this.#expect(block.text);
      return end;
    }
    // Some clients send an empty line behind a body (RFC 9112, 2.2).
    const text = block.text.startsWith('\r\n') ? block.text.slice(2) : block.text;
    block.start('');
    if (text === '') return end;
    const head = parseHttp1Head(text);
    const { services } = this.#options.handler;
    if (!services?.serves(head.headers.host)) {
      this.#begin(head);
      return end;
    }
    const unread = Buffer.concat([Buffer.from(`${text}\r\n`, 'latin1'), bytes.subarray(end)]);
    const socket = this.#handOver();
    socket.unshift(unread);
    services.accept(socket);
    return bytes.length;
  }

  /** The rest of a head has yet to come. */
  #expect(text: string): void {
    // Another protocol is told so at once, and not when its time is over.
    if (!/^[A-Z\r]/.test(text)) throw new MalformedMessage('this is not HTTP');
    // One empty line is what some send behind a body.
    if (this.#begun || text === '\r\n') return;
    this.#begun = true;
    if (this.#expected) return;
    this.#expected = true;
    this.#since = performance.now();
  }

  #begin(head: Http1Head): void {
    const upgrade = head.upgrade === null ? null : { protocol: head.upgrade, accept: () => this.#handOver() };
    const request = new Http1Request(head, this.#socket, upgrade, head.length === null ? this.#decoder() : null);
    const response = new Http1Response(this.#socket, head, this.#responses);
    this.#begun = false;
    this.#expected = false;
    this.#request = request;
    this.#response = response;
    this.#options.handler.onRequest(request, response);
  }

  #decoder(): ChunkedDecoder {
    this.#chunks ??= new ChunkedDecoder(this.#options.limits.headerBytes, true);
    this.#chunks.start();
    return this.#chunks;
  }

  #readBody(request: Http1Request, bytes: Buffer, at: number): number {
    const end = request.take(bytes, at);
    if (request.complete && this.#response?.destroyed) this.#next();
    return end;
  }

  /** The response has been written. */
  #settle(): void {
    if (!this.#response?.shouldKeepAlive) this.#close();
    else if (this.#request?.complete) this.#next();
    // Nobody reads the rest, which comes before the next request.
    else this.#request?.body?.resume();
  }

  /** The connection is free for another request. */
  #next(): void {
    const socket = this.#socket;
    this.#request = null;
    this.#response = null;
    this.#since = performance.now();
    // Who does not read the responses gets no more of them.
    if (socket.writableNeedDrain) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  /** Answers what is no request, or not in time. */
  #refuse(error: ApiError): void {
    if (this.#closing || this.#socket.destroyed) return;
    const response = this.#response ?? new Http1Response(this.#socket, NO_HEAD, this.#responses);
    this.#response = response;
    response.shouldKeepAlive = false;
    if (response.destroyed) this.#close();
    else if (response.headersSent) this.#breakOff();
    else answerError(WITHOUT_REQUEST, response, error);
    this.#request?.breakOff();
  }

  #explain(error: unknown): ApiError {
    if (error instanceof HeadersTooLong) return headersTooLong();
    if (error instanceof MalformedMessage) return malformedRequest(error.message);
    this.#options.log.error({ err: error }, 'a connection failed unexpectedly');
    return internalFailure();
  }

  /** Ends the connection at once, in a way that a response which is not complete does not look like one. */
  #breakOff(): void {
    this.#response?.destroy();
    this.#socket.destroy();
  }

  /** Says that nothing follows, and lets the client read what has been said: a reset would take that away. */
  #close(): void {
    if (this.#closing) return;
    this.#closing = true;
    const socket = this.#socket;
    // However slowly it reads what is left.
    socket.end(() => {
      const timer = setTimeout(() => socket.destroy(), FAREWELL).unref();
      socket.once('close', () => clearTimeout(timer));
    });
    socket.resume();
  }

  #handOver(): Socket {
    const socket = this.#socket;
    socket.off('data', this.#onData).off('drain', this.#onDrain).off('end', this.#onEnd).off('close', this.#onClose);
    this.#options.onOver(this);
    return socket.pause();
  }
}
