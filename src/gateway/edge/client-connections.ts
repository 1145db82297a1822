import type { Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoint.ts';
import { ClientConnection, clientTls } from './client-connection.ts';
import { runConnectPhase } from './connect-phase.ts';
import { type InternalLookup, internalTarget } from './internal-targets.ts';

interface Visit {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
  /** What the phase on_tcp_connect came to: an internal endpoint's URL, or the endpoint's own upstream. */
  admittedTo: string | 'upstream' | null;
  /** The connection as the internal endpoints that it is admitted to see it. */
  inside: ClientConnection | null;
}

/** What policies know of the public connections, and whom their phase on_tcp_connect has let through. */
export class ClientConnections {
  readonly #opened = new WeakMap<Socket, { at: number; verifiedBy: readonly string[] }>();
  readonly #visits = new WeakMap<Socket, Visit>();
  readonly #internal: InternalLookup;

  /** @param internal finds the endpoints that the phase can forward to */
  constructor(internal: InternalLookup) {
    this.#internal = internal;
  }

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
    const last = this.#visits.get(socket);
    if (last?.inside && last.endpoint !== endpoint) return last.inside;
    return this.#visitOf(socket, endpoint).connection;
  }

  /**
   * Runs the phase on_tcp_connect: over HTTP, it is known only with a connection's first request whose it is.
   *
   * @returns the endpoint that gets the requests, perhaps an internal one; null when the connection is to be cut
   */
  admit(socket: Socket, endpoint: GatewayEndpoint): GatewayEndpoint | null {
    const { policy } = endpoint;
    if (policy.onTcpConnect === null) return endpoint;
    const visit = this.#visitOf(socket, endpoint);
    if (visit.admittedTo === null) {
      const result = runConnectPhase(policy, { connection: visit.connection, endpoint }, this.#internal);
      if (result === 'cut') return null;
      visit.admittedTo = result === 'upstream' ? result : result.url;
      visit.inside = result === 'upstream' ? null : visit.connection.anew();
    }
    // One that was online for an earlier request may be gone.
    return visit.admittedTo === 'upstream' ? endpoint : (internalTarget(visit.admittedTo, this.#internal) ?? null);
  }

  #visitOf(socket: Socket, endpoint: GatewayEndpoint): Visit {
    const last = this.#visits.get(socket);
    // Another endpoint's policy has to come to its own results.
    if (last?.endpoint === endpoint) return last;
    const { at = Date.now(), verifiedBy } = this.#opened.get(socket) ?? {};
    const connection = new ClientConnection(socket, at, clientTls(socket, verifiedBy));
    const visit = { endpoint, connection, admittedTo: null, inside: null };
    this.#visits.set(socket, visit);
    return visit;
  }
}
