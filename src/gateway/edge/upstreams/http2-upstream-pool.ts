import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { DeadlineSweep } from '../connections/deadline-sweep.ts';
import { Http2UpstreamSession } from './http2-upstream-session.ts';
import { type Http2StreamOwner, Http2UpstreamStream } from './http2-upstream-stream.ts';
import { StreamQueue } from './stream-queue.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** How often deadlines are looked at, in milliseconds. */
const SWEEP = 250;

/** The HTTP/2 sessions to one endpoint's upstream, each of which carries many requests at a time. */
export class Http2UpstreamPool implements UpstreamLinks, Http2StreamOwner {
  readonly responseTimeout: number;
  readonly #line: StreamQueue;
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #sessions = new DeadlineSweep<Http2UpstreamSession>(SWEEP);
  readonly #streams = new DeadlineSweep<Http2UpstreamStream>(SWEEP);

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits) {
    this.#endpoint = endpoint;
    this.#limits = limits;
    this.#line = new StreamQueue(limits.streamWait);
    this.responseTimeout = limits.responseTimeout;
  }

  take(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, false, this);
  }

  fresh(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, true, this);
  }

  sessionFor(stream: Http2UpstreamStream): Http2UpstreamSession {
    const session = (stream.alone ? undefined : this.#sharedWith(stream.from)) ?? this.#newSession(stream.from);
    session.claim();
    this.#streams.add(stream);
    return session;
  }

  gone(stream: Http2UpstreamStream): void {
    this.#streams.delete(stream);
  }

  destroy(reason: Error): void {
    for (const stream of [...this.#streams]) stream.fail(reason);
    for (const session of [...this.#sessions]) session.destroy();
  }

  /** A session that has told the upstream whose it is takes requests of that client's connection alone. */
  #sharedWith({ address, proxyHeader }: ClientInfo): Http2UpstreamSession | undefined {
    for (const session of this.#sessions) {
      if (session.free && (!proxyHeader || session.from.address === address)) return session;
    }
    return undefined;
  }

  #newSession(from: ClientInfo): Http2UpstreamSession {
    const over = () => this.#sessions.delete(session);
    const session: Http2UpstreamSession = new Http2UpstreamSession(
      { endpoint: this.#endpoint, limits: this.#limits, line: this.#line },
      from,
      over,
    );
    this.#sessions.add(session);
    return session;
  }
}
