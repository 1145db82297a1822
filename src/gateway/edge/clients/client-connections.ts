import type { Socket } from 'node:net';
import type { PolicyConnect, TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { ClientConnection, clientTls, HelloTls } from '../connections/client-connection.ts';
import { type ConnectResult, demandsSame, joinedTermination, runConnectPhase } from '../connections/connect-phase.ts';
import { internalTarget } from '../connections/internal-targets.ts';
import type { ClientHello } from '../tls/client-hello.ts';

interface Visit {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
  /** What the phase on_tcp_connect came to: an internal endpoint's URL, or the endpoint's own upstream. */
  admittedTo: string | 'upstream' | null;
  /** The connection as the internal endpoints that it is admitted to see it. */
  inside: ClientConnection | null;
}

/** How a connection came in over TLS. */
export interface Entrance {
  /** Of its handshake; null for none but the usual. */
  readonly demands: TlsTermination | null;
  /** What came of the phase on_tcp_connect, when it ran before the handshake. */
  readonly admission: {
    readonly connection: ClientConnection;
    readonly endpoint: GatewayEndpoint;
    readonly result: ConnectResult;
  } | null;
}

const ANYBODY: Entrance = { demands: null, admission: null };

/** What policies know of the public connections, and whom their phase on_tcp_connect has let through. */
export class ClientConnections {
  readonly #opened = new WeakMap<Socket, { at: number; entrance: Entrance }>();
  readonly #visits = new WeakMap<Socket, Visit>();
  readonly #internal: InternalLookup;

  /** @param internal finds the endpoints that the phase can forward to */
  constructor(internal: InternalLookup) {
    this.#internal = internal;
  }

  /**
   * To be called before the handshake of a connection that names an endpoint, or nobody's. A policy that has a say in the
   * handshake runs its phase on_tcp_connect now.
   *
   * @returns null when the connection is to be cut
   */
  enter(socket: Socket, hello: ClientHello | null, endpoint: GatewayEndpoint | undefined): Entrance | null {
    if (!endpoint || !hello) return ANYBODY;
    const { policy, tls } = endpoint;
    if (!policy.terminatesTls) return { demands: tls, admission: null };
    const connection = new ClientConnection(socket, Date.now(), new HelloTls(hello));
    const connect: PolicyConnect = { connection, endpoint };
    const result = runConnectPhase(policy, connect, this.#internal);
    if (result === 'cut') return null;
    return {
      demands: joinedTermination(tls, connect.termination ?? null),
      admission: { connection, endpoint, result },
    };
  }

  /**
   * To be called when a connection can carry its first request.
   *
   * @param entrance what {@link enter} has come to, if there was a handshake
   */
  opened(socket: Socket, entrance: Entrance = ANYBODY): void {
    this.#opened.set(socket, { at: Date.now(), entrance });
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
      const result = this.#admission(socket, visit);
      if (result === 'cut') return null;
      visit.admittedTo = result === 'upstream' ? result : result.url;
      visit.inside = result === 'upstream' ? null : visit.connection.anew();
    }
    // One that was online for an earlier request may be gone.
    return visit.admittedTo === 'upstream' ? endpoint : (internalTarget(visit.admittedTo, this.#internal) ?? null);
  }

  #admission(socket: Socket, { connection, endpoint }: Visit): ConnectResult {
    const { demands, admission } = this.#opened.get(socket)?.entrance ?? ANYBODY;
    if (admission?.endpoint === endpoint) return admission.result;
    const connect: PolicyConnect = { connection, endpoint };
    const result = runConnectPhase(endpoint.policy, connect, this.#internal);
    // The handshake was done for another one, and is over.
    return connect.termination && !demandsSame(connect.termination, demands) ? 'cut' : result;
  }

  #visitOf(socket: Socket, endpoint: GatewayEndpoint): Visit {
    const last = this.#visits.get(socket);
    // Another endpoint's policy has to come to its own results.
    if (last?.endpoint === endpoint) return last;
    const { at = Date.now(), entrance = ANYBODY } = this.#opened.get(socket) ?? {};
    const connection = new ClientConnection(socket, at, clientTls(socket, verifiedBy(entrance)));
    const before = entrance.admission?.endpoint === endpoint ? entrance.admission.connection.results : undefined;
    if (before) connection.results = before;
    const visit = { endpoint, connection, admittedTo: null, inside: null };
    this.#visits.set(socket, visit);
    return visit;
  }
}

/** PEM of the authorities that the handshake verified the client's certificate against. */
function verifiedBy({ demands }: Entrance): readonly string[] {
  return demands?.clientVerification === 'require-and-verify' ? demands.clientAuthorities : [];
}
