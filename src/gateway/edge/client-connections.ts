import type { Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoint.ts';
import { ClientConnection } from './client-connection.ts';
import { isLetThrough } from './connect-phase.ts';

interface Visit {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
  admitted: boolean;
}

/** What policies know of the public connections, and whom their phase on_tcp_connect has let through. */
export class ClientConnections {
  readonly #startedAt = new WeakMap<Socket, number>();
  readonly #visits = new WeakMap<Socket, Visit>();

  /** To be called when a connection can carry its first request. */
  opened(socket: Socket): void {
    this.#startedAt.set(socket, Date.now());
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
    const connection = new ClientConnection(socket, this.#startedAt.get(socket) ?? Date.now());
    const visit = { endpoint, connection, admitted: false };
    this.#visits.set(socket, visit);
    return visit;
  }
}
