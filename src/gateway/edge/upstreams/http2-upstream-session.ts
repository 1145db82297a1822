import type { ClientHttp2Session } from 'node:http2';
import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../../agent-protocol/channel-duplex.ts';
import { DIAL_FAILURE_TEXT, dialSummary } from '../../../agent-protocol/dial-failure.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/online-endpoint.ts';
import { ConnectionLost, upstreamUnreachable } from '../http/edge-errors.ts';
import { MAX_HEADER_LINES } from '../http/headers.ts';
import type { StreamQueue } from './stream-queue.ts';
import type { UpstreamLimits } from './upstream-link.ts';

/** Bytes of one response buffered for a slow client; as many as an agent's stream carries unread. */
const STREAM_WINDOW = 262_144;
/** Bytes of all responses in flight to the gateway; those that wait for slow clients do not count. */
const SESSION_WINDOW = 1_048_576;

/** Concurrent requests when the upstream's settings have no limit (RFC 9113, 6.5.2). */
const DEFAULT_STREAMS = 100;

/** One stream to the upstream that carries HTTP/2 with prior knowledge. */
export class Http2UpstreamSession {
  /** Rejects when no stream to the upstream can be opened. */
  readonly opened: Promise<ClientHttp2Session>;
  readonly from: ClientInfo;
  readonly scheme: 'http' | 'https';
  used = false;
  /** Why the session ended, if known more precisely than its requests can tell. */
  failure: Error | null = null;
  /** When the last request ended, in milliseconds of `performance.now()`. */
  #idleSince = performance.now();
  readonly #keepAlive: number;
  #streams = 0;
  #session: ClientHttp2Session | null = null;
  #channel: ByteChannel | null = null;
  #transport: Http2Transport | null = null;
  #over = false;

  constructor(
    private readonly shared: {
      endpoint: GatewayEndpoint;
      limits: UpstreamLimits;
      /** Waits for a stream when the agent has none free. */
      queue: StreamQueue;
    },
    from: ClientInfo,
    onOver: () => void,
  ) {
    const { endpoint, limits } = shared;
    this.from = from;
    this.scheme = /^(?:https|tls):/.test(endpoint.forwardsTo) ? 'https' : 'http';
    this.#keepAlive = limits.keepAlive;
    this.opened = this.#open();
    const over = () => {
      this.#over = true;
      onOver();
    };
    this.opened.then((session) => session.once('close', over).once('goaway', over), over);
  }

  /** Whether the session can take another request, and a new one would not get ahead of its bytes. */
  get free(): boolean {
    const limit = this.#session?.remoteSettings?.maxConcurrentStreams ?? DEFAULT_STREAMS;
    const isOpen = !this.#over && this.#session?.closed !== true;
    return isOpen && this.#streams < limit && !this.#channel?.isCrowded;
  }

  claim(): void {
    this.#streams += 1;
  }

  release(): void {
    this.#streams -= 1;
    this.#idleSince = performance.now();
  }

  answered(): void {
    this.used = true;
  }

  checkTime(now: number): void {
    if (this.#streams === 0 && now - this.#idleSince >= this.#keepAlive) this.destroy();
  }

  destroy(): void {
    this.#over = true;
    this.#transport?.destroy();
  }

  /** Waits for the upstream's settings: it would refuse requests above a limit that is not known yet. */
  #settingsReceived(session: ClientHttp2Session): Promise<void> {
    return new Promise((resolve, reject) => {
      session.once('remoteSettings', () => resolve());
      session.once('close', () => reject(this.failure ?? new ConnectionLost()));
    });
  }

  async #open(): Promise<ClientHttp2Session> {
    const { endpoint, limits, queue } = this.shared;
    // Loaded on first use: it takes 2 MB.
    const { connect } = await import('node:http2');
    const channel = await openChannel(endpoint, this.from, queue);
    // The endpoint may have gone offline in the meantime.
    if (this.#over) {
      channel.abort();
      throw new ConnectionLost();
    }
    const stream = new Http2Transport(channel, (failure) => {
      this.failure = failure;
    });
    this.#channel = channel;
    this.#transport = stream;
    const session = connect(`${this.scheme}://upstream`, {
      createConnection: () => stream,
      maxHeaderListPairs: MAX_HEADER_LINES,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxHeaderListSize: limits.maxHeaderSize },
    });
    // An error is followed by 'close'.
    session.on('error', () => {});
    await this.#settingsReceived(session);
    session.setLocalWindowSize(SESSION_WINDOW);
    this.#session = session;
    return session;
  }
}

function openChannel(endpoint: GatewayEndpoint, from: ClientInfo, queue: StreamQueue): Promise<ByteChannel> {
  return new Promise(
    (resolve, reject) => void queue.enter(from.address, () => endpoint.openChannel(from), resolve, reject),
  );
}

/** Detects HTTP/1.1 in the first bytes: the agent's own error, or a wrong upstream. */
class Http2Transport extends ChannelDuplex {
  readonly #onFailure: (failure: Error) => void;
  #hasData = false;

  constructor(channel: ByteChannel, onFailure: (failure: Error) => void) {
    super(channel);
    this.#onFailure = onFailure;
  }

  /** Upstreams start with their settings. An end without any byte comes from an agent that cannot reach the upstream. */
  override onEnd(): void {
    if (!this.#hasData) this.#onFailure(upstreamUnreachable());
    super.onEnd();
  }

  override onData(payload: Buffer): void {
    if (this.#hasData || !payload.subarray(0, 5).equals(HTTP1)) {
      this.#hasData = true;
      super.onData(payload);
      return;
    }
    this.#onFailure(
      payload.includes(DIAL_FAILURE_TEXT)
        ? upstreamUnreachable(dialSummary(payload))
        : new MalformedMessage('upstream uses HTTP/1.1, not HTTP/2'),
    );
    this.destroy();
  }
}

/** No HTTP/2 frame starts with these bytes: its length would be invalid. */
const HTTP1 = Buffer.from('HTTP/');
