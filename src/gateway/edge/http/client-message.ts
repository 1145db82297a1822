import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** The request headers that the edge itself uses; repeated ones are joined. */
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

/** The body of a request, as a subset of Node's streams. It starts to flow with the first listener to `data`. */
export type ClientBody = Pick<Readable, 'destroyed' | 'on' | 'off' | 'pause' | 'resume' | 'readableLength'>;

export interface Upgrade {
  readonly protocol: string;
  /** Takes over the connection, paused. Its first bytes are those that followed the request. */
  accept(): Socket;
}

export interface ClientRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** `1.0`, `1.1` or `2.0`. */
  readonly httpVersion: string;
  readonly headers: ClientHeaders;
  /** Flat name, value list. */
  readonly rawHeaders: string[];
  /** Bytes of the request's head, before compression. */
  readonly headBytes: number;
  readonly rawTrailers: string[];
  readonly socket: Socket;
  /** Null without a body, whatever the method. */
  readonly body: ClientBody | null;
  readonly complete: boolean;
  /** Null without an upgrade, and always with HTTP/2. */
  readonly upgrade: Upgrade | null;
}

export interface ClientResponse {
  /** Whether the connection stays open for another request; ignored with HTTP/2. */
  shouldKeepAlive: boolean;
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  readonly chunkedEncoding: boolean;
  /** Learns the status once the head is set; null: nobody does. */
  onStatus: { responded(status: number): void } | null;
  /** Whether it counts as no response to a client; left out: it counts. */
  isProbe?: boolean;
  /** Sets the head, which leaves with the start of the body or by {@link flushHeaders}. @throws {Error} when it is invalid */
  writeHead(status: number, headers: string[], reason?: string): void;
  /** Sends an interim response, 1xx except 101, before the head. @throws {Error} for invalid characters in a header */
  writeInterim(status: number, headers: readonly string[], reason?: string): void;
  flushHeaders(): void;
  /** Buffers writes until {@link uncork}, so that they are sent together. */
  cork(): void;
  uncork(): void;
  /** @returns false when the writer should wait for `drain` */
  write(chunk: Buffer): boolean;
  addTrailers(trailers: readonly [name: string, value: string][]): void;
  end(last?: Buffer): void;
  /** Aborts the response, which the client sees as incomplete; `code` is the reset code for HTTP/2. */
  destroy(code?: number): void;
  on(event: 'close', listener: () => void): unknown;
  /** The head is set. */
  on(event: 'head', listener: (status: number, headers: readonly string[]) => void): unknown;
  once(event: 'close' | 'drain', listener: () => void): unknown;
}

export interface HttpHandler {
  /** Answers a request; throws nothing. */
  onRequest(req: ClientRequest, res: ClientResponse): void;
  /** The gateway's own services, which continue HTTP/1 connections that request one of their hosts. */
  services?: {
    /** By lower-case hostname. */
    readonly names: ReadonlyMap<string, unknown>;
    /** Continues a connection whose next request is still unread. */
    accept(socket: Socket): void;
  };
}
