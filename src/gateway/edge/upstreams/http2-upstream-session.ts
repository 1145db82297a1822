import type { ClientHttp2Session } from 'node:http2';
import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../../agent-protocol/channel-duplex.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { upstreamUnreachable } from '../http/edge-errors.ts';
import { MalformedMessage } from '../http/header-fields.ts';
import { MAX_HEADER_LINES } from '../http/request-guard.ts';
import { ConnectionLost, DIAL_FAILURE_TEXT } from '../http/upstream-failure.ts';
import type { StreamQueue } from './stream-queue.ts';
import type { UpstreamLimits } from './upstream-link.ts';

/** Bytes of a response that wait here for a slow client; as much as a stream of the agent's carries unread. */
const STREAM_WINDOW = 262_144;
/** Bytes of all responses together that may be under way to us; what waits for slow clients does not count. */
const SESSION_WINDOW = 1_048_576;

/** Requests at a time before the upstream has said how many it takes (RFC 9113, 6.5.2). */
const DEFAULT_STREAMS = 100;

/** What the sessions to one upstream share. */
export interface SharedParts {
  endpoint: GatewayEndpoint;
  limits: UpstreamLimits;
  /** Where those wait for whom the agent has no stream. */
  line: StreamQueue;
}

/** One stream to the upstream and the HTTP/2 that is spoken on it, from the first byte on and without asking. */
export class Http2UpstreamSession {
  /** Rejects when there is no stream to the upstream. */
  readonly opened: Promise<ClientHttp2Session>;
  readonly from: ClientInfo;
  readonly scheme: 'http' | 'https';
  /** Whether a request has been answered. */
  used = false;
  /** Why the session ended, when it is known better than by its requests. */
  failure: Error | null = null;
  /** When the last request ended, in milliseconds of `performance.now()`. */
  #idleSince = performance.now();
  readonly #keepAlive: number;
  #streams = 0;
  #session: ClientHttp2Session | null = null;
  #transport: Http2Transport | null = null;
  #over = false;

  constructor(shared: SharedParts, from: ClientInfo, onOver: () => void) {
    const { endpoint, limits } = shared;
    this.from = from;
    this.scheme = /^(?:https|tls):/.test(endpoint.forwardsTo) ? 'https' : 'http';
    this.#keepAlive = limits.keepAlive;
    this.opened = this.#open(shared);
    const over = () => {
      this.#over = true;
      onOver();
    };
    this.opened.then((session) => session.once('close', over).once('goaway', over), over);
  }

  /** Whether it takes one more request. */
  get free(): boolean {
    const limit = this.#session?.remoteSettings?.maxConcurrentStreams ?? DEFAULT_STREAMS;
    return !this.#over && this.#session?.closed !== true && this.#streams < limit;
  }

  /** A request goes by this session from now on. */
  claim(): void {
    this.#streams += 1;
  }

  /** A request is over. */
  release(): void {
    this.#streams -= 1;
    this.#idleSince = performance.now();
  }

  /** A request has been answered. */
  answered(): void {
    this.used = true;
  }

  /** Closes what has carried nothing for too long. */
  checkTime(now: number): void {
    if (this.#streams === 0 && now - this.#idleSince >= this.#keepAlive) this.destroy();
  }

  /** Ends it and all that it carries. */
  destroy(): void {
    this.#over = true;
    this.#transport?.destroy();
  }

  /** Until it is known how many requests the upstream takes at a time, it would refuse what is too much. */
  #greeted(session: ClientHttp2Session): Promise<void> {
    return new Promise((resolve, reject) => {
      session.once('remoteSettings', () => resolve());
      session.once('close', () => reject(this.failure ?? new ConnectionLost()));
    });
  }

  async #open({ endpoint, limits, line }: SharedParts): Promise<ClientHttp2Session> {
    // Loaded with the first request that needs it: it takes 2 MB.
    const { connect } = await import('node:http2');
    const channel = await openChannel(endpoint, this.from, line);
    // The endpoint may have gone offline while there was none.
    if (this.#over) {
      channel.abort();
      throw new ConnectionLost();
    }
    const stream = new Http2Transport(channel, (failure) => {
      this.failure = failure;
    });
    this.#transport = stream;
    if (this.from.proxyHeader) stream.write(this.from.proxyHeader);
    const session = connect(`${this.scheme}://upstream`, {
      createConnection: () => stream,
      maxHeaderListPairs: MAX_HEADER_LINES,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxHeaderListSize: limits.maxHeaderSize },
    });
    // An error ends in 'close', which all here wait for.
    session.on('error', () => {});
    await this.#greeted(session);
    session.setLocalWindowSize(SESSION_WINDOW);
    this.#session = session;
    return session;
  }
}

function openChannel(endpoint: GatewayEndpoint, from: ClientInfo, line: StreamQueue): Promise<ByteChannel> {
  return new Promise((resolve, reject) => void line.enter(() => endpoint.openChannel(from), resolve, reject));
}

/** Notices at the first bytes when somebody answers who speaks HTTP/1.1: the agent's own word, or the wrong upstream. */
class Http2Transport extends ChannelDuplex {
  readonly #onFailure: (failure: Error) => void;
  #begun = false;

  constructor(channel: ByteChannel, onFailure: (failure: Error) => void) {
    super(channel);
    this.#onFailure = onFailure;
  }

  /** An upstream begins with its settings, so nothing at all is what the agent sends that cannot reach it. */
  override onEnd(): void {
    if (!this.#begun) this.#onFailure(upstreamUnreachable());
    super.onEnd();
  }

  override onData(payload: Buffer): void {
    if (this.#begun || !payload.subarray(0, 5).equals(HTTP1)) {
      this.#begun = true;
      super.onData(payload);
      return;
    }
    this.#onFailure(
      payload.includes(DIAL_FAILURE_TEXT)
        ? upstreamUnreachable()
        : new MalformedMessage('the upstream speaks HTTP/1.1, not HTTP/2'),
    );
    this.destroy();
  }
}

/** No frame begins like this: it would be longer than allowed. */
const HTTP1 = Buffer.from('HTTP/');
