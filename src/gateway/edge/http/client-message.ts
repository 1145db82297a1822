import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** What the edge itself looks at among the headers of a request; repeated ones are joined. */
export interface ClientHeaders {
  readonly accept?: string | undefined;
  readonly connection?: string | undefined;
  readonly 'content-length'?: string | undefined;
  readonly expect?: string | undefined;
  readonly host?: string | undefined;
  readonly 'sec-websocket-key'?: string | undefined;
  readonly 'sec-websocket-version'?: string | undefined;
  readonly te?: string | undefined;
  readonly 'transfer-encoding'?: string | undefined;
  readonly upgrade?: string | undefined;
}

/** The body of a request: what the edge needs of Node's streams. It begins to flow with the first listener to `data`. */
export type ClientBody = Pick<Readable, 'destroyed' | 'on' | 'off' | 'pause' | 'resume'>;

/** A client's wish to go on with another protocol on its connection. */
export interface Upgrade {
  /** Value of the Upgrade header. */
  readonly protocol: string;
  /** Takes the connection out of HTTP's hands, paused; it begins with what the client sent behind its request. */
  accept(): Socket;
}

/** A public request, whichever version of HTTP it came by. */
export interface ClientRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** `1.0`, `1.1` or `2.0`. */
  readonly httpVersion: string;
  readonly headers: ClientHeaders;
  /** Flat name, value list. */
  readonly rawHeaders: string[];
  readonly rawTrailers: string[];
  /** Of the client's connection; with HTTP/2 it carries other requests too. */
  readonly socket: Socket;
  /** Null for none; the method says nothing about that. */
  readonly body: ClientBody | null;
  /** Whether all of it has arrived. */
  readonly complete: boolean;
  /** Null for none, as with all requests by HTTP/2. */
  readonly upgrade: Upgrade | null;
}

/** The response to a {@link ClientRequest}. */
export interface ClientResponse {
  /** Whether the connection is kept for another request; HTTP/2 connections always are. */
  shouldKeepAlive: boolean;
  readonly headersSent: boolean;
  /** Whether it is over, complete or not. */
  readonly destroyed: boolean;
  /** Whether trailers can follow the body. */
  readonly chunkedEncoding: boolean;
  /**
   * The head leaves with the beginning of the body, or by {@link flushHeaders}.
   *
   * @param headers flat name, value list
   * @throws {Error} when one holds what cannot be sent
   */
  writeHead(status: number, headers: string[], reason?: string): void;
  /**
   * Sends an interim response: 1xx but for 101. None follows the head.
   *
   * @param headers flat name, value list
   * @throws {Error} when one holds what cannot be sent
   */
  writeInterim(status: number, headers: readonly string[], reason?: string): void;
  /** Sends the head before there is a body. */
  flushHeaders(): void;
  /** Keeps what is written until {@link uncork}, so that it leaves together. */
  cork(): void;
  uncork(): void;
  /** @returns false when the writer should wait for `drain` */
  write(chunk: Buffer): boolean;
  addTrailers(trailers: readonly [name: string, value: string][]): void;
  end(last?: Buffer): void;
  /**
   * Breaks the response off, so that the client sees that it is not complete.
   *
   * @param code why, in HTTP/2
   */
  destroy(code?: number): void;
  on(event: 'close', listener: () => void): unknown;
  once(event: 'close' | 'drain', listener: () => void): unknown;
}
