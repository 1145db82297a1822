import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import type { ChunkedDecoder } from '../../http/chunked-decoder.ts';
import type { ClientRequest, Upgrade } from '../../http/client-message.ts';
import type { ReceivedRequest } from '../body-progress.ts';
import { unreadBytes } from '../client-memory.ts';
import type { Http1Head } from './http1-head.ts';

const NO_TRAILERS: string[] = [];

export class Http1Request implements ClientRequest, ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  readonly headers: Http1Head['headers'];
  readonly rawHeaders: string[];
  readonly body: Readable | null;
  rawTrailers = NO_TRAILERS;
  received = 0;
  /** gRPC is HTTP/2 only. */
  readonly isDialogue = false;
  complete: boolean;
  /** Missing bytes of a body that is not chunked. */
  #left: number;

  /**
   * @param chunks decodes a chunked body; null for others
   * @param onUnread called when a piece of the body waits for its reader
   */
  constructor(
    { method, target, version, headers, rawHeaders, length }: Http1Head,
    readonly socket: Socket,
    readonly upgrade: Upgrade | null,
    private readonly chunks: ChunkedDecoder | null,
    private readonly onUnread: () => void,
  ) {
    this.method = method;
    this.url = target;
    this.httpVersion = version;
    this.headers = headers;
    this.rawHeaders = rawHeaders;
    this.#left = length ?? 0;
    this.complete = length === 0;
    this.body = this.complete ? null : new Readable({ read: () => this.#resume() });
    // The response reports a lost connection.
    this.body?.on('error', () => {});
  }

  /** Bytes of memory that the unread part of the body takes. */
  get unreadBytes(): number {
    return this.body === null ? 0 : unreadBytes(this.body);
  }

  /**
   * Takes a piece of the body.
   *
   * @param at position of the body in the bytes
   * @returns the position after the piece
   * @throws {MalformedMessage} when the chunks are malformed
   */
  take(bytes: Buffer, at: number): number {
    if (this.chunks !== null) return this.#takeChunk(this.chunks, bytes, at);
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    this.#receive(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#left === 0) this.#finish(NO_TRAILERS);
    return end;
  }

  /** The connection is lost. */
  abort(): void {
    this.body?.destroy();
  }

  #takeChunk(chunks: ChunkedDecoder, bytes: Buffer, at: number): number {
    const end = chunks.take(bytes, at);
    if (chunks.piece !== null) this.#receive(chunks.piece);
    if (chunks.trailers !== null) this.#finish(chunks.trailers);
    return end;
  }

  /** Pauses the client when the reader is slow. */
  #receive(piece: Buffer): void {
    this.received += piece.length;
    const { body } = this;
    if (body === null) return;
    if (!body.push(piece)) this.socket.pause();
    if (body.readableLength > 0) this.onUnread();
  }

  #finish(trailers: string[]): void {
    this.rawTrailers = trailers;
    this.complete = true;
    this.body?.push(null);
  }

  #resume(): void {
    // After the body there may be another request, which has to wait.
    if (!this.complete) this.socket.resume();
  }
}
