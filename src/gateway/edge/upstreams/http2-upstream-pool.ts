import { DeadlineSweep } from '../../../lib/time/deadline-sweep.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { Http2UpstreamSession } from './http2-upstream-session.ts';
import { type Http2StreamOwner, Http2UpstreamStream } from './http2-upstream-stream.ts';
import { StreamQueue } from './stream-queue.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** Milliseconds between checks of deadlines. */
const SWEEP_MS = 250;

/** The HTTP/2 sessions to one endpoint's upstream; each carries many requests at a time. */
export class Http2UpstreamPool implements UpstreamLinks, Http2StreamOwner {
  readonly responseTimeout: number;
  readonly #queue: StreamQueue;
  readonly #sessions = new DeadlineSweep<Http2UpstreamSession>(SWEEP_MS);
  readonly #streams = new DeadlineSweep<Http2UpstreamStream>(SWEEP_MS);

  constructor(
    private readonly endpoint: GatewayEndpoint,
    private readonly limits: UpstreamLimits,
  ) {
    this.#queue = new StreamQueue(limits.streamWait);
    this.responseTimeout = limits.responseTimeout;
  }

  take(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, false, this);
  }

  takeNew(from: ClientInfo): Http2UpstreamStream {
    return new Http2UpstreamStream(from, true, this);
  }

  sessionFor(stream: Http2UpstreamStream): Http2UpstreamSession {
    const session =
      (stream.needsNewSession ? undefined : this.#sharedWith(stream.from)) ?? this.#newSession(stream.from);
    session.claim();
    this.#streams.add(stream);
    return session;
  }

  remove(stream: Http2UpstreamStream): void {
    this.#streams.delete(stream);
  }

  /** Agents that retire their endpoints have no HTTP/2 upstreams; these sessions end with the agent's. */
  retire(): void {}

  destroy(reason: Error): void {
    for (const stream of [...this.#streams]) stream.fail(reason);
    for (const session of [...this.#sessions]) session.destroy();
  }

  /** A session with a PROXY header takes requests of that client's connection only. */
  #sharedWith({ address, proxyHeader }: ClientInfo): Http2UpstreamSession | undefined {
    for (const session of this.#sessions) {
      if (session.free && (!proxyHeader || session.from.address === address)) return session;
    }
    return undefined;
  }

  #newSession(from: ClientInfo): Http2UpstreamSession {
    const onOver = () => this.#sessions.delete(session);
    const session: Http2UpstreamSession = new Http2UpstreamSession(
      { endpoint: this.endpoint, limits: this.limits, queue: this.#queue },
      from,
      onOver,
    );
    this.#sessions.add(session);
    return session;
  }
}
