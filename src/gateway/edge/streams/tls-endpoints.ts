import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { ClientConnection, clientTls, HelloTls } from '../connections/client-connection.ts';
import { destinationOf, joinedTermination } from '../connections/connect-phase.ts';
import { resetConnection } from '../http/reset-connection.ts';
import type { Handshakes } from '../tls/handshakes.ts';
import type { TlsRoute, Visitor } from '../tls/tls-mux.ts';
import type { StreamProxy } from './stream-proxy.ts';

export interface TlsEndpointsOptions {
  /** Finds the endpoint that serves a name; those of a pool take turns. */
  lookup(name: string): GatewayEndpoint | undefined;
  /** Finds the endpoints that policies can forward to. */
  internal: InternalLookup;
  handshakes: Handshakes;
  streams: StreamProxy;
}

/**
 * Takes visitors to the endpoints of the protocol `tls`: their own TLS goes through to the agent, or it ends here, with
 * the certificate that the agent has sent or the gateway's own.
 */
export class TlsEndpoints implements TlsRoute {
  readonly #options: TlsEndpointsOptions;

  constructor(options: TlsEndpointsOptions) {
    this.#options = options;
  }

  async serve(visitor: Visitor): Promise<boolean> {
    const { lookup, internal, handshakes, streams } = this.#options;
    const { socket, hello, name, arrived } = visitor;
    const endpoint = hello && name !== '' ? lookup(name) : undefined;
    if (!endpoint || !hello) return false;
    const startedAt = Date.now();
    const to = destinationOf(endpoint, new ClientConnection(socket, startedAt, new HelloTls(hello)), internal);
    if (to === null) {
      resetConnection(socket);
      return true;
    }
    // What this endpoint demands of its visitors holds for those as well that its policy forwards.
    const wished = joinedTermination(endpoint.tls, to.termination ?? null);
    const demands = joinedTermination(to.endpoint.tls, wished);
    const info = { protocol: 'tls', through: to.through } as const;
    if (demands === null) {
      arrived();
      streams.connectTo(socket, to.endpoint, to.connection, { ...info, passthrough: true });
    } else {
      const secured = await handshakes.secure(visitor, { demands });
      if (secured === null) return true;
      const ended = new ClientConnection(secured, startedAt, clientTls(secured));
      streams.connectTo(secured, to.endpoint, ended, info);
    }
    return true;
  }
}
