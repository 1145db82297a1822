import type { HttpListenerBuilder, Listener, Session, TcpListenerBuilder, TlsListenerBuilder } from '@ngrok/ngrok';
import type { EndpointRequest } from '../connector.ts';

export type EndpointBuilder = HttpListenerBuilder | TcpListenerBuilder | TlsListenerBuilder;

/**
 * The listener builders of one session, used again and again. When a `listen()` is refused, the SDK never lets go of
 * its builder, nor of the session that it belongs to (1.7.0: a method that rejects keeps a reference to its object);
 * a tunnel that is refused and retried for months must not leave thousands of them behind.
 *
 * A builder serves one call at a time: `listen()` reads it when the call's turn comes in the SDK, and what was set
 * on it meanwhile would bind one tunnel under the name of another.
 */
export class EndpointBuilders {
  /** Builders that no call uses now, by what is set on them. */
  readonly #idle = new Map<string, EndpointBuilder[]>();

  constructor(
    private readonly session: Session,
    private readonly verifyUpstreamTls: boolean,
  ) {}

  /** Binds an endpoint; rejects as the SDK does. */
  async listen(request: EndpointRequest): Promise<Listener> {
    const idle = this.#idleFor(request);
    const builder = idle.pop() ?? this.#create(request.protocol);
    this.#prepare(builder, request);
    try {
      // false: without it the SDK opens a local port of its own to forward to.
      return await builder.listen(false);
    } finally {
      idle.push(builder);
    }
  }

  /** What was set once cannot be taken back, so requests that leave something out have builders of their own. */
  #idleFor({ protocol, domain, trafficPolicy }: EndpointRequest): EndpointBuilder[] {
    const key = `${protocol} ${domain !== undefined} ${hasRules(trafficPolicy)}`;
    const idle = this.#idle.get(key) ?? [];
    this.#idle.set(key, idle);
    return idle;
  }

  #prepare(builder: EndpointBuilder, { domain, forwardsTo, trafficPolicy }: EndpointRequest): void {
    builder.forwardsTo(forwardsTo).verifyUpstreamTls(this.verifyUpstreamTls);
    if (hasRules(trafficPolicy)) builder.trafficPolicy(JSON.stringify(trafficPolicy));
    if (domain === undefined) return;
    if ('remoteAddr' in builder) builder.remoteAddr(domain);
    else builder.domain(domain);
  }

  #create(protocol: EndpointRequest['protocol']): EndpointBuilder {
    if (protocol === 'tcp') return this.session.tcpEndpoint();
    return protocol === 'tls' ? this.session.tlsEndpoint() : this.session.httpEndpoint();
  }
}

function hasRules(policy: EndpointRequest['trafficPolicy']): boolean {
  return Object.values(policy ?? {}).some((rules) => rules.length > 0);
}
