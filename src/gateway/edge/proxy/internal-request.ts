import { EventEmitter, once } from 'node:events';
import { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { CollectedBody } from '../../../lib/http/read-response.ts';
import { namedValues, type OutboundRequest, type OutboundResponse } from '../../../traffic-policy/public-request.ts';
import type { ClientRequest, ClientResponse } from '../http/client-message.ts';
import { asError } from '../http/edge-errors.ts';

/** A request of a policy to an internal endpoint, which no client's connection carries. */
export class InternalRequest implements ClientRequest {
  readonly method: string;
  readonly url: string;
  readonly httpVersion = '1.1';
  readonly headers: ClientRequest['headers'];
  readonly rawHeaders: string[];
  readonly headBytes = 0;
  readonly rawTrailers: string[] = [];
  /** Not connected; policies may close it. */
  readonly socket = new Socket();
  readonly body: Readable | null;
  readonly complete = true;
  readonly upgrade = null;

  constructor({ method, url, headers, body }: OutboundRequest) {
    this.method = method;
    this.url = url.pathname + url.search;
    const length = body === null ? [] : ['content-length', String(body.length)];
    this.rawHeaders = ['host', url.host, ...headers, ...length];
    const named = Object.entries(namedValues(this.rawHeaders));
    this.headers = Object.fromEntries(named.map(([name, values]) => [name, values.join(', ')]));
    this.body = body === null || body.length === 0 ? null : Readable.from([body]);
    this.socket.on('error', () => {});
  }
}

/** The response to it, which is collected. */
export class InternalResponse
  extends EventEmitter<{ close: []; drain: []; head: [status: number, headers: readonly string[]] }>
  implements ClientResponse
{
  shouldKeepAlive = false;
  onStatus: ClientResponse['onStatus'] = null;
  headersSent = false;
  destroyed = false;
  readonly chunkedEncoding = false;
  #status = 0;
  #headers: readonly string[] = [];
  readonly #body: CollectedBody;
  #complete = false;
  #error: Error | null = null;

  constructor(outbound: OutboundRequest) {
    super();
    this.#body = new CollectedBody(outbound);
  }

  /** @throws Error when it is too long, or ends before it is complete */
  async whole(signal: AbortSignal): Promise<OutboundResponse> {
    const abort = () => this.destroy();
    signal.addEventListener('abort', abort);
    try {
      if (!this.destroyed) await once(this, 'close');
    } finally {
      signal.removeEventListener('abort', abort);
    }
    signal.throwIfAborted();
    if (!this.#complete) throw this.#error ?? new Error('the internal endpoint closed the connection');
    return { status: this.#status, headers: this.#headers, body: this.#body.whole(), address: '' };
  }

  writeHead(status: number, headers: string[]): void {
    this.#status = status;
    this.#headers = headers;
    this.headersSent = true;
    this.onStatus?.responded(status);
    this.emit('head', status, headers);
  }

  write(piece: Buffer): boolean {
    if (this.destroyed) return true;
    try {
      this.#body.add(piece);
    } catch (error) {
      this.#error = asError(error);
      this.destroy();
    }
    return true;
  }

  end(last?: Buffer): void {
    if (last) this.write(last);
    if (this.destroyed) return;
    this.#complete = true;
    this.destroy();
  }

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    // As with a client's connection, the event comes after destroy() has returned.
    setImmediate(() => this.emit('close'));
  }

  writeInterim(): void {}
  flushHeaders(): void {}
  cork(): void {}
  uncork(): void {}
  addTrailers(): void {}
}
