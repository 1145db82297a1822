import type { ByteChannel, ByteReceiver } from '../../../agent-protocol/byte-channel.ts';
import { nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { hostOf } from '../../../lib/network/ip-address.ts';
import { turnTime } from '../../../lib/time/loop-turn.ts';
import type { ClientInfo } from '../../endpoints/online-endpoint.ts';
import { asError, ConnectionLost, ResponseTimeout } from '../http/edge-errors.ts';
import { headerLine, passableTrailers } from '../http/headers.ts';
import { usualName } from '../http/usual-names.ts';
import { ResponseParser } from './response-parser.ts';
import type { StreamQueue } from './stream-queue.ts';
import type { ExchangeEvents, OutgoingRequest, UpstreamLimits, UpstreamLink } from './upstream-link.ts';

export interface ConnectionOwner {
  /** Waits for a stream when the agent has none free, or the upstream bears no more connections. */
  readonly queue: StreamQueue;
  /**
   * Opens a stream for a connection, or gives it that of an idle one.
   *
   * @throws {StreamsExhausted} when it has to wait
   */
  open(connection: UpstreamConnection, limit: number): ByteChannel;
  /** Whether a client's next connection has to wait for the end of a request, rather than for a stream of the agent. */
  waitsForRequests(from: ClientInfo, limit: number): boolean;
  /** The upstream has signed this connection's client in, or is about to: it serves nobody else any more. */
  bind(connection: UpstreamConnection): void;
  /** Whether the agent does not answer at the moment. */
  readonly isStalled: boolean;
  /** Closes idle connections when new ones get no answer beside them, unless that has not helped before. */
  relieve(): void;
  /** The first bytes have arrived on a new connection. */
  answered(connection: UpstreamConnection): void;
  /** @param hadBody whether the response could have a body */
  idle(connection: UpstreamConnection, hadBody: boolean): void;
  /** The upstream has closed a connection that it had promised to keep, after so many idle milliseconds. */
  closedEarly(idleTime: number): void;
  /** The upstream has sent bytes that belong to no response; on any connection, the next client could get such bytes. */
  sentLateBytes(): void;
  /** @param hadStream whether one has been closed */
  remove(connection: UpstreamConnection, hadStream: boolean): void;
}

const FIRST_ERROR = 400;
const CRLF = Buffer.from('\r\n');

/** Schemes that sign in a connection, not a request (RFC 4559, 6; MS-NTHT). */
const SIGNS_IN_CONNECTION = /^(?:NTLM|Negotiate|Nego2|Kerberos)\b/i;

/** Milliseconds that the connection of a client who has signed in waits for the next request. */
const BOUND_KEEP_ALIVE = 300_000;

/** Milliseconds before its announced timeout that an upstream may close a connection. */
const KEEP_ALIVE_MARGIN = 1000;

/** One stream to the upstream that carries HTTP/1, one request at a time. */
export class UpstreamConnection implements UpstreamLink, ByteReceiver {
  reused = false;
  /** The only client connection that it serves; null: it serves all. */
  boundTo: object | null = null;
  /** When the request was sent, in milliseconds of `performance.now()`. */
  sentAt = 0;
  readonly #parser: ResponseParser;
  #channel: ByteChannel | null = null;
  #user: ExchangeEvents | null = null;
  #chunked = false;
  #wholeRequestSent = false;
  /** Whether the upstream has to read before more of the body can be sent. */
  #full = false;
  /** Milliseconds that the upstream has to answer. */
  #responseTimeout: number;
  /** When a response's head or reading a body is overdue, or an idle connection is closed; by `performance.now()`. */
  #deadline = Number.POSITIVE_INFINITY;
  #idleSince = 0;
  #counted = 0;
  #idleBefore = 0;
  /** The channel's departures when the request was written; undefined: unknown. */
  #departuresBefore: number | undefined;
  #leaveQueue: (() => void) | undefined;

  constructor(
    private readonly limits: UpstreamLimits,
    public from: ClientInfo,
    private readonly owner: ConnectionOwner,
  ) {
    this.#parser = new ResponseParser(limits.maxHeaderSize);
    this.#responseTimeout = limits.responseTimeout;
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
    const signsIn = signsInConnection(request.headers, 'authorization');
    this.#user = user;
    this.#responseTimeout = request.upstream?.response_timeout ?? this.limits.responseTimeout;
    if (this.reused) this.#idleBefore = this.idleTime;
    this.#parser.expect({ method: request.method, upgrade: upgrade !== undefined }, user);
    this.#chunked = body === 'chunked';
    this.#wholeRequestSent = body === null;
    if (this.#channel) this.#connected(this.#channel, head, signsIn);
    else {
      const limit = request.upstream?.max_connections ?? Number.POSITIVE_INFINITY;
      this.#leaveQueue = this.owner.queue.enter(
        this.from.address,
        () => this.owner.open(this, limit),
        (channel) => this.#connected(channel, head, signsIn),
        (error) => this.fail(asError(error)),
        this.owner.waitsForRequests(this.from, limit) ? this.#responseTimeout : undefined,
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
    const channel = this.#channel;
    this.#channel = null;
    channel?.abort();
    this.owner.remove(this, channel !== null);
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
    if (this.#user !== null && !this.reused && this.unanswered) this.owner.relieve();
    if (this.#user !== null && this.unanswered && this.owner.isStalled) this.#user.onStalled();
    if (now < this.#deadline) return;
    if (this.#user === null) this.abort();
    else if (this.#parser.awaitsHead) this.fail(new ResponseTimeout(this.#responseTimeout));
    else if (this.#full) this.fail(new ConnectionLost(new Error('upstream does not read the request')));
  }

  onData(bytes: Buffer): void {
    const user = this.#user;
    if (!this.#parser.started) this.owner.answered(this);
    // Another request could take such bytes for its response. A new stream has none of an earlier one.
    if (user === null || (this.reused && !this.#mayHaveLeft)) {
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
    if (this.#isRefused && this.#parser.end()) this.#finish(false);
    else this.fail(new ConnectionLost(error));
  }

  /** Whether the upstream has refused the request without reading all of it: what it closes then resets the connection. */
  get #isRefused(): boolean {
    const { head } = this.#parser;
    return this.#user !== null && !this.#wholeRequestSent && head !== null && head.status >= FIRST_ERROR;
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

  /** @param signsIn not before: until then, the client's requests wait for the connection on which it has begun to sign in */
  #connected(channel: ByteChannel, head: Buffer, signsIn: boolean): void {
    channel.receiver = this;
    this.#channel = channel;
    if (signsIn) this.owner.bind(this);
    this.#start(channel, head);
  }

  #start(channel: ByteChannel, head: Buffer): void {
    this.#extendDeadline();
    this.sentAt = turnTime();
    channel.write(head);
    this.#departuresBefore = channel.departures;
    this.#user?.onSent();
  }

  /** Whether the upstream can have the request by now. */
  get #mayHaveLeft(): boolean {
    return this.#departuresBefore === undefined || this.#departuresBefore !== this.#channel?.departures;
  }

  #extendDeadline(): void {
    this.#deadline = turnTime() + this.#responseTimeout;
  }

  /** @param clean whether no bytes follow the response, which the next request could take for its own */
  #finish(clean: boolean): void {
    const { head } = this.#parser;
    if (
      head !== null &&
      (head.status === 401 || head.status === 407) &&
      signsInConnection(head.headers, 'authenticate')
    )
      this.owner.bind(this);
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
    const keepAlive = this.boundTo === null ? this.limits.keepAlive : BOUND_KEEP_ALIVE;
    if (head.keepAliveSeconds === null) return keepAlive;
    return Math.min(keepAlive, head.keepAliveSeconds * 1000 - KEEP_ALIVE_MARGIN);
  }

  #handOver(user: ExchangeEvents, rest: Buffer): void {
    const { head } = this.#parser;
    const channel = this.release();
    if (head && channel) user.onUpgrade(head, channel, rest);
  }
}

/** @param field `authorization` of requests, `authenticate` of responses; of the proxy, too */
function signsInConnection(headers: readonly string[], field: 'authorization' | 'authenticate'): boolean {
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at);
    if (
      name.length >= field.length &&
      SIGNS_IN_CONNECTION.test(valueAt(headers, at)) &&
      name.toLowerCase().endsWith(field)
    )
      return true;
  }
  return false;
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
  const isHttp2 = request.version === 'HTTP/2.0';
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at);
    text += headerLine(isHttp2 ? usualName(name) : name, valueAt(headers, at));
  }
  if (body === 'chunked') text += 'Transfer-Encoding: chunked\r\n';
  if (awaitsContinue) text += 'Expect: 100-continue\r\n';
  if (upgrade !== undefined) text += `Connection: Upgrade\r\nUpgrade: ${upgrade}\r\n`;
  // The Connection header has to list TE (RFC 9110, 10.1.4).
  else if (trailers) text += 'TE: trailers\r\nConnection: TE\r\n';
  return Buffer.from(`${text}\r\n`, 'latin1');
}
