import type { HttpListenerBuilder, Listener, Session, TcpListenerBuilder, TlsListenerBuilder } from '@ngrok/ngrok';
import type { EndpointRequest } from '../connector.ts';

export type EndpointBuilder = HttpListenerBuilder | TcpListenerBuilder | TlsListenerBuilder;

/**
 * The reusable listener builders of one session. When `listen()` rejects, the SDK leaks its builder and the session (1.7.0:
 * a method that rejects keeps a reference to its object). A tunnel that is refused and retried for months must not leak
 * thousands of them.
 *
 * A builder serves one call at a time. `listen()` reads it only when the SDK starts the call, and changes meanwhile would
 * bind one tunnel under the name of another.
 */
export class EndpointBuilders {
  /** Idle builders by the options set on them. */
  readonly #idle = new Map<string, EndpointBuilder[]>();

  constructor(private readonly session: Session) {}

  async listen(request: EndpointRequest): Promise<Listener> {
    const idle = this.#idleFor(request);
    const builder = idle.pop() ?? this.#create(request);
    this.#prepare(builder, request);
    try {
      // false: otherwise the SDK opens a local port to forward to.
      return await builder.listen(false);
    } finally {
      idle.push(builder);
    }
  }

  /** Options cannot be unset, so each combination of them has builders of its own. */
  #idleFor({ protocol, domain, trafficPolicy, options = {} }: EndpointRequest): EndpointBuilder[] {
    const { binding, app_protocol, pooling, metadata, proxy_proto } = options;
    const set = [domain !== undefined, hasRules(trafficPolicy), metadata !== undefined];
    const key = [protocol, ...set, binding, app_protocol, pooling, proxy_proto].join(' ');
    const idle = this.#idle.get(key) ?? [];
    this.#idle.set(key, idle);
    return idle;
  }

  #prepare(builder: EndpointBuilder, { domain, forwardsTo, trafficPolicy, options }: EndpointRequest): void {
    builder.forwardsTo(forwardsTo);
    if (hasRules(trafficPolicy)) builder.trafficPolicy(JSON.stringify(trafficPolicy));
    if (options?.metadata !== undefined) builder.metadata(options.metadata);
    if (domain === undefined) return;
    if ('remoteAddr' in builder) builder.remoteAddr(domain);
    else builder.domain(domain);
  }

  #create({ protocol, options = {} }: EndpointRequest): EndpointBuilder {
    const builder = this.#builderFor(protocol);
    const { binding, app_protocol, pooling, proxy_proto } = options;
    if (binding !== undefined) builder.binding(binding);
    if (app_protocol !== undefined && 'appProtocol' in builder) builder.appProtocol(app_protocol);
    if (pooling !== undefined) builder.poolingEnabled(pooling);
    if (proxy_proto !== undefined) builder.proxyProto(proxy_proto);
    return builder;
  }

  #builderFor(protocol: EndpointRequest['protocol']): EndpointBuilder {
    if (protocol === 'tcp') return this.session.tcpEndpoint();
    return protocol === 'tls' ? this.session.tlsEndpoint() : this.session.httpEndpoint();
  }
}

function hasRules(policy: EndpointRequest['trafficPolicy']): boolean {
  return Object.values(policy ?? {}).some((rules) => rules.length > 0);
}
