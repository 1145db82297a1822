import type { ByteChannel, ByteReceiver } from '../../../agent-protocol/byte-channel.ts';
import { nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { hostOf } from '../../../lib/network/ip-address.ts';
import { currentTurn, turnTime } from '../../../lib/time/loop-turn.ts';
import { type ClientInfo, type GatewayEndpoint, StreamsExhausted } from '../../endpoints/endpoint.ts';
import { asError, ConnectionLost, ResponseTimeout } from '../http/edge-errors.ts';
import { headerLine, passableTrailers } from '../http/headers.ts';
import { ResponseParser } from './response-parser.ts';
import type { StreamQueue } from './stream-queue.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLimits, UpstreamLink } from './upstream-link.ts';

export interface ConnectionOwner {
  /** Waits for a stream when the agent has none free. */
  readonly queue: StreamQueue;
  /** Takes the stream of a connection that has just become idle. */
  takeIdleStream(): ByteChannel | null;
  /** @param hadBody whether the response could have a body */
  idle(connection: UpstreamConnection, hadBody: boolean): void;
  /** The upstream has closed a connection that it had promised to keep, after so many idle milliseconds. */
  closedEarly(idleTime: number): void;
  /** The upstream has sent bytes that belong to no response; on any connection, the next client could get such bytes. */
  sentLateBytes(): void;
  remove(connection: UpstreamConnection): void;
}

const CRLF = Buffer.from('\r\n');

/** Milliseconds before its announced timeout that an upstream may close a connection. */
const KEEP_ALIVE_MARGIN = 1000;

/** One stream to the upstream that carries HTTP/1, one request at a time. */
export class UpstreamConnection implements UpstreamLink, ByteReceiver {
  reused = false;
  readonly #parser: ResponseParser;
  #channel: ByteChannel | null = null;
  #user: ExchangeEvents | null = null;
  #chunked = false;
  #wholeRequestSent = false;
  /** Whether the upstream has to read before more of the body can be sent. */
  #full = false;
  /** When a response's head or reading a body is overdue, or an idle connection is closed; by `performance.now()`. */
  #deadline = Number.POSITIVE_INFINITY;
  #idleSince = 0;
  #counted = 0;
  #idleBefore = 0;
  /** The turn of the event loop in which the request was written: it leaves at its end. */
  #writtenIn = 0;
  #leaveQueue: (() => void) | undefined;

  constructor(
    private readonly endpoint: GatewayEndpoint,
    private readonly limits: UpstreamLimits,
    public from: ClientInfo,
    private readonly owner: ConnectionOwner,
  ) {
    this.#parser = new ResponseParser(limits.maxHeaderSize);
  }

  get isIdle(): boolean {
    return this.#user === null && this.#channel !== null;
  }

  /** Whether a new connection would get ahead of what is on its way beside this one. */
  get isCrowded(): boolean {
    return this.#channel?.isCrowded ?? false;
  }

  usedBy(from: ClientInfo): void {
    if (from.address !== this.from.address) this.#channel?.usedBy?.(hostOf(from.address));
    this.from = from;
  }

  get idleTime(): number {
    return turnTime() - this.#idleSince;
  }

  get unanswered(): boolean {
    return !this.#parser.started;
  }

  send(outgoing: OutgoingRequest, user: ExchangeEvents): void {
    const { request, body, upgrade } = outgoing;
    const head = requestHead(outgoing);
    this.#user = user;
    if (this.reused) this.#idleBefore = this.idleTime;
    this.#parser.expect({ method: request.method, upgrade: upgrade !== undefined }, user);
    this.#chunked = body === 'chunked';
    this.#wholeRequestSent = body === null;
    if (this.#channel) this.#start(this.#channel, head);
    else {
      this.#leaveQueue = this.owner.queue.enter(
        this.from.address,
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

  abort(): void {
    this.#user = null;
    this.#parser.stop();
    this.#leaveQueue?.();
    this.#channel?.abort();
    this.#channel = null;
    this.owner.remove(this);
  }

  release(): ByteChannel | null {
    const channel = this.#channel;
    this.#channel = null;
    this.abort();
    return channel;
  }

  fail(error: Error): void {
    const user = this.#user;
    this.abort();
    user?.onFailed(error);
  }

  checkTime(now: number): void {
    if (now < this.#deadline) return;
    if (this.#user === null) this.abort();
    else if (this.#parser.awaitsHead) this.fail(new ResponseTimeout());
    else if (this.#full) this.fail(new ConnectionLost(new Error('upstream does not read the request')));
  }

  onData(bytes: Buffer): void {
    const user = this.#user;
    // Another request could take such bytes for its response. A new stream has none of an earlier one.
    if (user === null || (this.reused && this.#writtenIn === currentTurn())) {
      this.owner.sentLateBytes();
      this.fail(new ConnectionLost());
      return;
    }
    try {
      this.#take(user, bytes);
    } catch (error) {
      if (this.reused && this.#parser.awaitsHead) this.owner.sentLateBytes();
      // Includes exceptions of our own: they cost one request, never the session.
      this.fail(asError(error));
    }
  }

  onEnd(): void {
    try {
      if (this.#parser.end()) this.#finish(false);
      else this.onClosed();
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
    if (this.#user === null) this.owner.closedEarly(this.idleTime);
    else if (this.reused && this.unanswered) this.owner.closedEarly(this.#idleBefore);
    this.fail(new ConnectionLost(error));
  }

  #take(user: ExchangeEvents, bytes: Buffer): void {
    const taken = this.#parser.push(bytes);
    if (this.#counted > 0 || !this.#parser.idle) this.#count();
    // The user may have aborted in between.
    if (this.#user !== user) return;
    if (this.#parser.idle) {
      const isClean = taken === bytes.length;
      if (!isClean) this.owner.sentLateBytes();
      this.#finish(isClean);
    } else if (this.#parser.upgraded) this.#handOver(user, bytes.subarray(taken));
  }

  /** An agent may leave as many heads unfinished as it has streams. */
  #count(): void {
    const { held } = this.#parser;
    if (held === this.#counted) return;
    this.#channel?.keep?.(held - this.#counted);
    this.#counted = held;
  }

  /** Opens a stream or, when the agent has reached its limit, takes that of an idle connection. */
  #open(): ByteChannel {
    try {
      return this.endpoint.openChannel(this.from);
    } catch (error) {
      // A stream with a PROXY header belongs to one client.
      const isFull = error instanceof StreamsExhausted && !this.from.proxyHeader;
      const idle = isFull ? this.owner.takeIdleStream() : null;
      if (idle === null) throw error;
      this.reused = true;
      idle.usedBy?.(hostOf(this.from.address));
      return idle;
    }
  }

  #connected(channel: ByteChannel, head: Buffer): void {
    channel.receiver = this;
    this.#channel = channel;
    this.#start(channel, head);
  }

  #start(channel: ByteChannel, head: Buffer): void {
    this.#extendDeadline();
    channel.write(head);
    this.#writtenIn = currentTurn();
    this.#user?.onSent();
  }

  #extendDeadline(): void {
    this.#deadline = turnTime() + this.limits.responseTimeout;
  }

  /** @param clean whether no bytes follow the response, which the next request could take for its own */
  #finish(clean: boolean): void {
    const idle = this.#idleTimeout();
    this.#user = null;
    if (!clean || idle <= 0) return void this.abort();
    this.reused = true;
    this.#idleSince = turnTime();
    this.#deadline = this.#idleSince + idle;
    this.#channel?.resume();
    this.owner.idle(this, !this.#parser.bodyless);
  }

  /** Milliseconds that the connection can wait for another request; 0 when it must be closed. */
  #idleTimeout(): number {
    const { head } = this.#parser;
    if (!this.#wholeRequestSent || head === null || !head.keepAlive) return 0;
    if (head.keepAliveSeconds === null) return this.limits.keepAlive;
    return Math.min(this.limits.keepAlive, head.keepAliveSeconds * 1000 - KEEP_ALIVE_MARGIN);
  }

  #handOver(user: ExchangeEvents, rest: Buffer): void {
    const { head } = this.#parser;
    const channel = this.release();
    if (head && channel) user.onUpgrade(head, channel, rest);
  }
}

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

/** Formats the request line and headers; throws when a header contains invalid characters. */
export function requestHead({ request, body, awaitsContinue, trailers, upgrade }: OutgoingRequest): Buffer {
  const { method, target, headers } = request;
  let text = `${method} ${target} HTTP/1.1\r\n`;
  for (let at = 0; at < headers.length; at += 2) {
    text += headerLine(nameAt(headers, at), valueAt(headers, at));
  }
  if (body === 'chunked') text += 'Transfer-Encoding: chunked\r\n';
  if (awaitsContinue) text += 'Expect: 100-continue\r\n';
  if (upgrade !== undefined) text += `Connection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  // The Connection header has to list TE (RFC 9110, 10.1.4).
  else if (trailers) text += 'TE: trailers\r\nConnection: TE\r\n';
  return Buffer.from(`${text}\r\n`, 'latin1');
}
