import type { IncomingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';

type Listener = (chunk: Buffer) => void;
type RequestEvent = 'data' | 'end' | 'close' | 'error';

/** A public request, whichever version of HTTP it came by: what the edge needs of Node's IncomingMessage. */
export interface ClientRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** `1.0`, `1.1` or `2.0`. */
  readonly httpVersion: string;
  /** By lower-case name. */
  readonly headers: IncomingHttpHeaders;
  /** Flat name, value list. */
  readonly rawHeaders: string[];
  readonly rawTrailers: string[];
  /** Of the client's connection; with HTTP/2 it carries other requests too. */
  readonly socket: Socket;
  /** Whether all of it has arrived. */
  readonly complete: boolean;
  readonly destroyed: boolean;
  on(event: RequestEvent, listener: Listener): this;
  off(event: RequestEvent, listener: Listener): this;
  pause(): this;
  resume(): this;
}

/** The response to a {@link ClientRequest}: what the edge needs of Node's ServerResponse. */
export interface ClientResponse {
  /** Whether the connection is kept for another request; HTTP/2 connections always are. */
  shouldKeepAlive: boolean;
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  /** Whether trailers can follow the body. */
  readonly chunkedEncoding: boolean;
  /** @param headers flat name, value list */
  writeHead(status: number, headers: string[]): unknown;
  writeHead(status: number, reason: string, headers: string[]): unknown;
  writeContinue(): void;
  writeEarlyHints(hints: { link: string }): void;
  /** Sends the head before there is a body. */
  flushHeaders(): void;
  /** @returns false when the writer should wait for `drain` */
  write(chunk: Buffer): boolean;
  addTrailers(trailers: [name: string, value: string][]): void;
  end(): unknown;
  end(last: Buffer | string): unknown;
  end(last: string, encoding: BufferEncoding): unknown;
  /** Breaks the response off, so that the client sees that it is not complete. */
  destroy(): unknown;
  on(event: 'close', listener: () => void): unknown;
  once(event: 'close' | 'drain', listener: () => void): unknown;
}
