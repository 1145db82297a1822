import type { ByteChannel, ByteReceiver } from '../../../agent-protocol/byte-channel.ts';
import { type ClientInfo, type GatewayEndpoint, StreamsExhausted } from '../../endpoints/endpoint.ts';
import { passableTrailers } from '../http/headers.ts';
import { asError, ConnectionLost, ResponseTimeout } from '../http/upstream-failure.ts';
import { requestHead } from './request-head.ts';
import { ResponseParser } from './response-parser.ts';
import type { StreamQueue } from './stream-queue.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLimits, UpstreamLink } from './upstream-link.ts';

/** Where a connection belongs. */
export interface ConnectionOwner {
  /** Where those wait for whom the agent has no stream. */
  readonly line: StreamQueue;
  /** Takes the stream of a connection that has just fallen idle. */
  spare(): ByteChannel | null;
  /** It can take another request. */
  idle(connection: UpstreamConnection): void;
  /** It is over. */
  gone(connection: UpstreamConnection): void;
}

const CRLF = Buffer.from('\r\n');

/** An upstream may hang up a moment before the time that it says it waits. */
const KEEP_ALIVE_MARGIN = 1000;

/** One stream to the upstream and the HTTP spoken on it; carries one request at a time. */
export class UpstreamConnection implements UpstreamLink, ByteReceiver {
  reused = false;
  /** On whose behalf the stream is opened. */
  readonly from: ClientInfo;
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #owner: ConnectionOwner;
  readonly #parser: ResponseParser;
  #channel: ByteChannel | null = null;
  #user: ExchangeEvents | null = null;
  #chunked = false;
  #wholeRequestSent = false;
  /** Whether the body waits for the upstream to read. */
  #full = false;
  /** When the head of a response or the reading of a body is overdue, or an idle connection closed; in milliseconds of `performance.now()`. */
  #deadline = Number.POSITIVE_INFINITY;
  #idleSince = 0;
  #leaveLine: (() => void) | undefined;

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits, from: ClientInfo, owner: ConnectionOwner) {
    this.#endpoint = endpoint;
    this.#limits = limits;
    this.from = from;
    this.#owner = owner;
    this.#parser = new ResponseParser(limits.maxHeaderSize);
  }

  /** Milliseconds for which it has waited for a request. */
  get idleTime(): number {
    return performance.now() - this.#idleSince;
  }

  get unanswered(): boolean {
    return !this.#parser.started;
  }

  send(outgoing: OutgoingRequest, user: ExchangeEvents): void {
    const { request, body, upgrade } = outgoing;
    const head = requestHead(outgoing);
    this.#user = user;
    this.#parser.expect({ method: request.method, upgrade: upgrade !== undefined }, user);
    this.#chunked = body === 'chunked';
    this.#wholeRequestSent = body === null;
    if (this.#channel) this.#start(this.#channel, head);
    else {
      this.#leaveLine = this.#owner.line.enter(
        () => this.#open(),
        (channel) => this.#connected(channel, head),
        (error) => this.fail(asError(error)),
      );
    }
  }

  write(bytes: Buffer): boolean {
    this.#extendDeadline();
    const channel = this.#channel;
    if (channel === null) return false;
    this.#full = !(this.#chunked ? writeChunk(channel, bytes) : channel.write(bytes));
    return !this.#full;
  }

  finishRequest(trailers: readonly string[]): void {
    if (this.#chunked) this.#channel?.write(lastChunk(trailers));
    this.#wholeRequestSent = true;
  }

  pause(): void {
    this.#channel?.pause();
  }

  resume(): void {
    this.#channel?.resume();
  }

  /** Ends the connection; its user is told nothing any more. */
  abort(): void {
    this.#user = null;
    this.#parser.stop();
    this.#leaveLine?.();
    this.#channel?.abort();
    this.#channel = null;
    this.#owner.gone(this);
  }

  /** Ends the connection, but not its stream. */
  release(): ByteChannel | null {
    const channel = this.#channel;
    this.#channel = null;
    this.abort();
    return channel;
  }

  /** Ends the connection because of something that its user is told. */
  fail(error: Error): void {
    const user = this.#user;
    this.abort();
    user?.onFailed(error);
  }

  /** Ends what takes too long. */
  checkTime(now: number): void {
    if (now < this.#deadline) return;
    if (this.#user === null) this.abort();
    else if (this.#parser.awaitsHead) this.fail(new ResponseTimeout());
    else if (this.#full) this.fail(new ConnectionLost(new Error('the upstream does not read the request')));
  }

  onData(bytes: Buffer): void {
    const user = this.#user;
    // Nobody asked: the connection cannot be trusted with another request.
    if (user === null) {
      this.abort();
      return;
    }
    try {
      this.#take(user, bytes);
    } catch (error) {
      // Not only what the parser refuses: a failure of ours costs one request, never the session.
      this.fail(asError(error));
    }
  }

  onEnd(): void {
    try {
      if (this.#parser.end()) this.#finish(false);
      else this.fail(new ConnectionLost());
    } catch (error) {
      this.fail(asError(error));
    }
  }

  onDrain(): void {
    this.#extendDeadline();
    this.#full = false;
    this.#user?.onDrain();
  }

  onClosed(error?: Error): void {
    this.fail(new ConnectionLost(error));
  }

  #take(user: ExchangeEvents, bytes: Buffer): void {
    const taken = this.#parser.push(bytes);
    // The user may have given up in between.
    if (this.#user !== user) return;
    if (this.#parser.idle) this.#finish(taken === bytes.length);
    else if (this.#parser.upgraded) this.#handOver(user, bytes.subarray(taken));
  }

  /** A new stream or, when the agent carries as many as it can, one that another request is done with. */
  #open(): ByteChannel {
    try {
      return this.#endpoint.openChannel(this.from);
    } catch (error) {
      // With a PROXY header a stream stays one client's.
      const isFull = error instanceof StreamsExhausted && !this.from.proxyHeader;
      const spare = isFull ? this.#owner.spare() : null;
      if (spare === null) throw error;
      this.reused = true;
      return spare;
    }
  }

  #connected(channel: ByteChannel, head: Buffer): void {
    channel.receiver = this;
    this.#channel = channel;
    if (this.from.proxyHeader) channel.write(this.from.proxyHeader);
    this.#start(channel, head);
  }

  #start(channel: ByteChannel, head: Buffer): void {
    this.#extendDeadline();
    channel.write(head);
    this.#user?.onSent();
  }

  #extendDeadline(): void {
    this.#deadline = performance.now() + this.#limits.responseTimeout;
  }

  /** @param clean whether nothing came behind the response, which the next request could take for its own */
  #finish(clean: boolean): void {
    const idle = this.#patience();
    this.#user = null;
    if (!clean || idle <= 0) {
      this.abort();
      return;
    }
    this.reused = true;
    this.#idleSince = performance.now();
    this.#deadline = this.#idleSince + idle;
    this.#channel?.resume();
    this.#owner.idle(this);
  }

  /** How long the connection can wait for another request; 0 when it cannot take any. */
  #patience(): number {
    const { head } = this.#parser;
    if (!this.#wholeRequestSent || head === null || !head.keepAlive) return 0;
    if (head.keepAliveSeconds === null) return this.#limits.keepAlive;
    return Math.min(this.#limits.keepAlive, head.keepAliveSeconds * 1000 - KEEP_ALIVE_MARGIN);
  }

  #handOver(user: ExchangeEvents, rest: Buffer): void {
    const { head } = this.#parser;
    const channel = this.release();
    if (head && channel) user.onUpgrade(head, channel, rest);
  }
}

/** @returns false when the writer should wait */
function writeChunk(channel: ByteChannel, bytes: Buffer): boolean {
  channel.write(Buffer.from(`${bytes.length.toString(16)}\r\n`, 'latin1'));
  channel.write(bytes);
  return channel.write(CRLF);
}

function lastChunk(trailers: readonly string[]): Buffer {
  let text = '0\r\n';
  for (const [name, value] of passableTrailers(trailers)) text += `${name}: ${value}\r\n`;
  return Buffer.from(`${text}\r\n`, 'latin1');
}
