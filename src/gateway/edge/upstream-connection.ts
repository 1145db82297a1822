import {
  type ClientInfo,
  type GatewayEndpoint,
  StreamsExhausted,
  type UpstreamChannel,
  type UpstreamReceiver,
} from '../endpoint.ts';
import type { ResponseHead } from './response-head.ts';
import { type ResponseEvents, ResponseParser } from './response-parser.ts';
import { ConnectionLost, HeadersTimeout } from './upstream-failure.ts';

/** How requests to an upstream are bounded; milliseconds and bytes. */
export interface UpstreamLimits {
  /** Until the head of a response has arrived, counted from the last of the request that could be sent. */
  headersTimeout: number;
  /** How long an unused stream is kept for the next request. */
  keepAlive: number;
  maxHeaderSize: number;
  /** How long a request waits for a stream when the agent carries as many as it can. */
  streamWait: number;
}

/** A request as it leaves. */
export interface OutgoingRequest {
  method: string;
  /** Request line and headers, to the empty line. */
  head: Buffer;
  hasBody: boolean;
  /** Whether the upstream may answer with another protocol. */
  upgrade: boolean;
}

/** What becomes of a request. After `onComplete`, `onUpgrade` or `onFailed` nothing follows. */
export interface ExchangeEvents extends ResponseEvents {
  /** The head has left; the body may follow. */
  onSent(): void;
  /** There is room for more of the body. */
  onDrain(): void;
  /** @param rest what came behind the head already */
  onUpgrade(head: ResponseHead, channel: UpstreamChannel, rest: Buffer): void;
  onFailed(error: Error): void;
}

/** Where a connection belongs. */
export interface ConnectionOwner {
  /** It can take another request. */
  idle(connection: UpstreamConnection): void;
  /** It is over. */
  gone(connection: UpstreamConnection): void;
}

/** How often a waiting request looks for a free stream. */
const STREAM_POLL = 20;

/** An upstream may hang up a moment before the time that it says it waits. */
const KEEP_ALIVE_MARGIN = 1000;

/** One stream to the upstream and the HTTP spoken on it; carries one request at a time. */
export class UpstreamConnection implements UpstreamReceiver {
  /** Whether the stream has answered a request before: it may have gone stale unnoticed. */
  reused = false;
  /** On whose behalf the stream is opened. */
  readonly from: ClientInfo;
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #owner: ConnectionOwner;
  readonly #parser: ResponseParser;
  #channel: UpstreamChannel | null = null;
  #user: ExchangeEvents | null = null;
  #wholeRequestSent = false;
  /** When the head of a response is overdue, or an idle connection closed; in milliseconds of `performance.now()`. */
  #deadline = Number.POSITIVE_INFINITY;
  #retry: NodeJS.Timeout | undefined;

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits, from: ClientInfo, owner: ConnectionOwner) {
    this.#endpoint = endpoint;
    this.#limits = limits;
    this.from = from;
    this.#owner = owner;
    this.#parser = new ResponseParser(limits.maxHeaderSize);
  }

  /** Whether the present request has had no answer at all yet. */
  get unanswered(): boolean {
    return !this.#parser.started;
  }

  /** Sends a request, as soon as there is a stream. */
  send(request: OutgoingRequest, user: ExchangeEvents): void {
    this.#user = user;
    this.#parser.expect(request, user);
    this.#wholeRequestSent = !request.hasBody;
    if (this.#channel) this.#start(this.#channel, request.head);
    else this.#connect(request.head, performance.now() + this.#limits.streamWait);
  }

  /**
   * Sends a piece of the request's body.
   *
   * @returns false when the writer should wait for `onDrain`
   */
  write(bytes: Buffer): boolean {
    this.#extendDeadline();
    return this.#channel?.write(bytes) ?? false;
  }

  /** The body is complete. */
  finishRequest(): void {
    this.#wholeRequestSent = true;
  }

  /** Slows the response down. */
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
    clearTimeout(this.#retry);
    this.#channel?.abort();
    this.#channel = null;
    this.#owner.gone(this);
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
    else if (this.#parser.awaitsHead) this.fail(new HeadersTimeout());
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

  #connect(head: Buffer, deadline: number): void {
    let channel: UpstreamChannel;
    try {
      channel = this.#endpoint.openChannel(this.from);
    } catch (error) {
      if (error instanceof StreamsExhausted && performance.now() < deadline) {
        this.#retry = setTimeout(() => this.#connect(head, deadline), STREAM_POLL).unref();
      } else {
        this.fail(asError(error));
      }
      return;
    }
    channel.receiver = this;
    this.#channel = channel;
    if (this.from.proxyHeader) channel.write(this.from.proxyHeader);
    this.#start(channel, head);
  }

  #start(channel: UpstreamChannel, head: Buffer): void {
    this.#extendDeadline();
    channel.write(head);
    this.#user?.onSent();
  }

  #extendDeadline(): void {
    this.#deadline = performance.now() + this.#limits.headersTimeout;
  }

  /** @param clean whether nothing came behind the response, which the next request could take for its own */
  #finish(clean: boolean): void {
    const idle = this.#idleTime();
    this.#user = null;
    if (!clean || idle <= 0) {
      this.abort();
      return;
    }
    this.reused = true;
    this.#deadline = performance.now() + idle;
    this.#channel?.resume();
    this.#owner.idle(this);
  }

  /** How long the connection can wait for another request; 0 when it cannot take any. */
  #idleTime(): number {
    const { head } = this.#parser;
    if (!this.#wholeRequestSent || head === null || !head.keepAlive) return 0;
    if (head.keepAliveSeconds === null) return this.#limits.keepAlive;
    return Math.min(this.#limits.keepAlive, head.keepAliveSeconds * 1000 - KEEP_ALIVE_MARGIN);
  }

  #handOver(user: ExchangeEvents, rest: Buffer): void {
    const { head } = this.#parser;
    const channel = this.#channel;
    this.#channel = null;
    this.abort();
    if (head && channel) user.onUpgrade(head, channel, rest);
  }
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
