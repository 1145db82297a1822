import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { ClientRequest, Upgrade } from './client-message.ts';
import type { Http1Head } from './http1-head.ts';

const NO_TRAILERS: string[] = [];

/** A request by HTTP/1. */
export class Http1Request implements ClientRequest {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  readonly headers: Http1Head['headers'];
  readonly rawHeaders: string[];
  readonly socket: Socket;
  readonly body: Readable | null;
  readonly upgrade: Upgrade | null;
  rawTrailers = NO_TRAILERS;
  complete: boolean;

  constructor(
    { method, target, version, headers, rawHeaders, length }: Http1Head,
    socket: Socket,
    upgrade: Upgrade | null,
  ) {
    this.method = method;
    this.url = target;
    this.httpVersion = version;
    this.headers = headers;
    this.rawHeaders = rawHeaders;
    this.socket = socket;
    this.upgrade = upgrade;
    this.complete = length === 0;
    this.body = this.complete ? null : new Readable({ read: () => this.#readOn() });
    // A break is seen by the response.
    this.body?.on('error', () => {});
  }

  /** Takes a piece of the body; a reader that is slow slows the client down. */
  receive(piece: Buffer): void {
    if (this.body?.push(piece) === false) this.socket.pause();
  }

  /** The body is complete. */
  finish(trailers = NO_TRAILERS): void {
    this.rawTrailers = trailers;
    this.complete = true;
    this.body?.push(null);
  }

  /** The client broke off. */
  breakOff(): void {
    this.body?.destroy();
  }

  #readOn(): void {
    // Behind the body there may be another request, which has to wait.
    if (!this.complete) this.socket.resume();
  }
}
