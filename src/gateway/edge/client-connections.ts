import type { Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoint.ts';
import { ClientConnection, clientTls } from './client-connection.ts';
import { isLetThrough } from './connect-phase.ts';

interface Visit {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
  admitted: boolean;
}

/** What policies know of the public connections, and whom their phase on_tcp_connect has let through. */
export class ClientConnections {
  readonly #opened = new WeakMap<Socket, { at: number; verifiedBy: readonly string[] }>();
  readonly #visits = new WeakMap<Socket, Visit>();

  /**
   * To be called when a connection can carry its first request.
   *
   * @param verifiedBy PEM of the authorities that its handshake verified a client's certificate against
   */
  opened(socket: Socket, verifiedBy: readonly string[] = []): void {
    this.#opened.set(socket, { at: Date.now(), verifiedBy });
  }

  /** The same object for all requests that a connection brings to an endpoint in a row. */
  of(socket: Socket, endpoint: GatewayEndpoint): ClientConnection {
    return this.#visitOf(socket, endpoint).connection;
  }

  /**
   * Runs the phase on_tcp_connect: over HTTP, it is known only with a connection's first request whose it is.
   *
   * @returns false when the connection is to be cut
   */
  admit(socket: Socket, endpoint: GatewayEndpoint): boolean {
    const { policy } = endpoint;
    if (policy.onTcpConnect === null) return true;
    const visit = this.#visitOf(socket, endpoint);
    visit.admitted ||= isLetThrough(policy, { connection: visit.connection, endpoint });
    return visit.admitted;
  }

  #visitOf(socket: Socket, endpoint: GatewayEndpoint): Visit {
    const last = this.#visits.get(socket);
    // Another endpoint's policy has to come to its own results.
    if (last?.endpoint === endpoint) return last;
    const { at = Date.now(), verifiedBy } = this.#opened.get(socket) ?? {};
    const connection = new ClientConnection(socket, at, clientTls(socket, verifiedBy));
    const visit = { endpoint, connection, admitted: false };
    this.#visits.set(socket, visit);
    return visit;
  }
}
