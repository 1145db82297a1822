import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { ClientConnection, clientTls, HelloTls } from '../connections/client-connection.ts';
import { findDestination } from '../connections/destination.ts';
import { resetConnection } from '../http/reset-connection.ts';
import { mergeDemands } from '../tls/handshake-demands.ts';
import type { Handshakes } from '../tls/handshakes.ts';
import type { PendingConnection, TlsRoute } from '../tls/tls-route.ts';
import type { StreamProxy } from './stream-proxy.ts';

export interface TlsEndpointsOptions {
  /** Finds the endpoint that serves a name; pooled endpoints take turns. */
  lookup(name: string): GatewayEndpoint | undefined;
  /** Finds the endpoints that policies forward to. */
  internal: InternalLookup;
  handshakes: Handshakes;
  streams: StreamProxy;
}

/**
 * The endpoints of the protocol `tls`. TLS passes through to the agent, or the edge terminates it with the agent's
 * certificate or one of the gateway's own.
 */
export class TlsEndpoints implements TlsRoute {
  constructor(private readonly options: TlsEndpointsOptions) {}

  async serve(pending: PendingConnection): Promise<boolean> {
    const { lookup, internal, handshakes, streams } = this.options;
    const { socket, hostName, handshakeDone } = pending;
    const endpoint = hostName === '' ? undefined : lookup(hostName);
    if (!endpoint) return false;
    const startedAt = Date.now();
    const to = findDestination(endpoint, new ClientConnection(socket, startedAt, new HelloTls(hostName)), internal);
    if (to === null) {
      resetConnection(socket);
      return true;
    }
    // The demands of this endpoint also hold for clients that its policy forwards.
    const demands = mergeDemands(to.endpoint.tls, mergeDemands(endpoint.tls, to.termination));
    const info = { protocol: 'tls', through: to.through } as const;
    if (demands === null) {
      handshakeDone();
      streams.connectTo(socket, to.endpoint, to.connection, { ...info, passthrough: true });
      return true;
    }
    const secured = await handshakes.secure(pending, { demands });
    if (secured === null) return true;
    streams.connectTo(secured, to.endpoint, new ClientConnection(secured, startedAt, clientTls(secured)), info);
    return true;
  }
}
