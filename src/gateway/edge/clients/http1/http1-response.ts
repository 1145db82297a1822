import { EventEmitter } from 'node:events';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { isName, nameAt, valueAt } from '../../../../lib/http/header-fields.ts';
import type { EdgeCounters } from '../../../metrics/edge-counters.ts';
import type { ClientResponse } from '../../http/client-message.ts';
import { resetConnection } from '../../http/error-response.ts';
import { headerLine } from '../../http/headers.ts';
import type { Http1Head } from './http1-request.ts';

let text = '';
let until = 0;

/** The current time for a Date header (RFC 9110, 5.6.7); cached for a second. */
function httpDate(): string {
  const now = Date.now();
  if (now >= until || now < until - 1000) {
    text = new Date(now).toUTCString();
    until = now - (now % 1000) + 1000;
  }
  return text;
}

/** Bodies up to this size are copied behind their head, so that both leave in one write. */
const SMALL = 16_384;

export class Http1Response extends EventEmitter implements ClientResponse {
  shouldKeepAlive: boolean;
  onStatus: ClientResponse['onStatus'] = null;
  headersSent = false;
  destroyed = false;
  chunkedEncoding = false;
  isProbe = false;
  continued = false;
  readonly #socket: Socket;
  readonly #isHttp10: boolean;
  readonly #isHead: boolean;
  #bodyless = false;
  #untilClose = false;
  #head = '';
  #trailers = '';

  constructor(
    socket: Socket,
    { method, version, keepAlive, upgrade }: Http1Head,
    private readonly options: {
      keepAlive: string;
      counters: EdgeCounters;
      onEnd(): void;
    },
  ) {
    super();
    this.#socket = socket;
    this.#isHttp10 = version === '1.0';
    this.#isHead = method === 'HEAD';
    // A client that requests an upgrade may have started to speak the other protocol.
    this.shouldKeepAlive = keepAlive && upgrade === null;
  }

  writeHead(status: number, headers: readonly string[], reason = STATUS_CODES[status] ?? ''): void {
    let text = `HTTP/1.1 ${status} ${reason}\r\n`;
    let hasLength = false;
    let hasDate = false;
    for (let at = 0; at < headers.length; at += 2) {
      const name = nameAt(headers, at);
      if (isName(name, 'connection') || isName(name, 'keep-alive') || isName(name, 'transfer-encoding')) continue;
      hasDate ||= isName(name, 'date');
      hasLength ||= isName(name, 'content-length');
      text += headerLine(name, valueAt(headers, at));
    }
    this.headersSent = true;
    if (!this.isProbe) this.options.counters.responded(status, this.#socket);
    this.onStatus?.responded(status);
    this.#bodyless = this.#isHead || status === 204 || status === 304;
    this.chunkedEncoding = !this.#bodyless && !hasLength && !this.#isHttp10;
    this.#untilClose = !this.#bodyless && !hasLength && this.#isHttp10;
    if (this.#untilClose) this.shouldKeepAlive = false;
    if (!hasDate) text += `Date: ${httpDate()}\r\n`;
    text += this.shouldKeepAlive ? this.options.keepAlive : 'Connection: close\r\n';
    if (this.chunkedEncoding) text += 'Transfer-Encoding: chunked\r\n';
    this.#head = `${text}\r\n`;
    this.emit('head', status, headers);
  }

  writeInterim(status: number, headers: readonly string[], reason = STATUS_CODES[status] ?? ''): void {
    // HTTP/1.0 has no interim responses (RFC 9110, 15.2).
    if (this.headersSent || this.#isHttp10) return;
    this.continued ||= status === 100;
    let text = `HTTP/1.1 ${status} ${reason}\r\n`;
    for (let at = 0; at < headers.length; at += 2) text += headerLine(nameAt(headers, at), valueAt(headers, at));
    this.#send(`${text}\r\n`);
  }

  flushHeaders(): void {
    this.#send(this.#takeHead());
  }

  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  write(chunk: Buffer): boolean {
    return this.#sendPart(chunk, '');
  }

  addTrailers(trailers: readonly [name: string, value: string][]): void {
    for (const [name, value] of trailers) this.#trailers += headerLine(name, value);
  }

  end(last?: Buffer): void {
    if (this.destroyed) return;
    this.#sendPart(last, this.chunkedEncoding ? `0\r\n${this.#trailers}\r\n` : '');
    this.#close();
    this.options.onEnd();
  }

  destroy(): void {
    if (this.destroyed) return;
    // A body delimited by the end of the connection would look complete.
    if (this.#untilClose) resetConnection(this.#socket);
    else this.#socket.destroy();
    this.#close();
  }

  abort(): void {
    if (!this.destroyed) this.#close();
  }

  #close(): void {
    this.destroyed = true;
    this.emit('close');
  }

  /** Sends the head, if that is still due, a part of the body, and the end of a chunked one. */
  #sendPart(part: Buffer | undefined, end: string): boolean {
    const head = this.#takeHead();
    if (this.#bodyless || part === undefined || part.length === 0) return this.#send(head + end);
    if (!this.chunkedEncoding) return this.#send(head, part);
    return this.#send(`${head}${part.length.toString(16)}\r\n`, part, `\r\n${end}`);
  }

  #takeHead(): string {
    const head = this.#head;
    this.#head = '';
    return head;
  }

  #send(before: string, chunk?: Buffer, after = ''): boolean {
    const socket = this.#socket;
    if (this.destroyed) return true;
    if (chunk === undefined) return before === '' || socket.write(before, 'latin1');
    if (before === '' && after === '') return socket.write(chunk);
    if (chunk.length <= SMALL) return socket.write(before + chunk.toString('latin1') + after, 'latin1');
    socket.cork();
    if (before !== '') socket.write(before, 'latin1');
    let room = socket.write(chunk);
    if (after !== '') room = socket.write(after, 'latin1');
    socket.uncork();
    return room;
  }
}
