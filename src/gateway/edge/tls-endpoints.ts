import type { TlsTermination } from '../../traffic-policy/steps.ts';
import type { GatewayEndpoint } from '../endpoint.ts';
import { ClientConnection, clientTls, HelloTls } from './client-connection.ts';
import { isLetThrough } from './connect-phase.ts';
import { cut } from './cut.ts';
import type { TlsRoute, Visitor } from './front-door.ts';
import type { Handshakes } from './handshakes.ts';
import type { StreamProxy } from './stream-proxy.ts';

export interface TlsEndpointsOptions {
  /** Finds the endpoint that serves a name; those of a pool take turns. */
  lookup(name: string): GatewayEndpoint | undefined;
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
    const { lookup, handshakes, streams } = this.#options;
    const { socket, hello, name, arrived } = visitor;
    const endpoint = hello && name !== '' ? lookup(name) : undefined;
    if (!endpoint || !hello) return false;
    const startedAt = Date.now();
    const connection = new ClientConnection(socket, startedAt, new HelloTls(hello));
    const connect: { connection: ClientConnection; endpoint: GatewayEndpoint; termination?: TlsTermination } = {
      connection,
      endpoint,
    };
    if (!isLetThrough(endpoint.policy, connect)) {
      cut(socket);
      return true;
    }
    const demands = joined(endpoint.tls, connect.termination);
    if (demands === null) {
      arrived();
      streams.join(socket, endpoint, connection, { protocol: 'tls', passthrough: true });
    } else {
      await handshakes.secure(visitor, { demands }, (secured) => {
        streams.join(secured, endpoint, new ClientConnection(secured, startedAt, clientTls(secured)), {
          protocol: 'tls',
        });
      });
    }
    return true;
  }
}

/** What the agent has asked for when it bound the endpoint, and the policy's wishes for this connection, which go first. */
function joined(bound: TlsTermination | null, wished: TlsTermination | undefined): TlsTermination | null {
  if (wished === undefined || bound === null) return wished ?? bound;
  const { certificate, privateKey } = wished.certificate === null ? bound : wished;
  const { clientAuthorities, clientVerification } = wished.clientAuthorities.length === 0 ? bound : wished;
  return { ...wished, certificate, privateKey, clientAuthorities, clientVerification };
}
