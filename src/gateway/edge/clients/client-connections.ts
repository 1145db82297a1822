import type { Socket } from 'node:net';
import type { PolicyConnect } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { ClientConnection, clientTls } from '../connections/client-connection.ts';
import { type ConnectResult, recordFor, runConnectPhase } from '../connections/connect-phase.ts';
import { internalTarget } from '../connections/internal-targets.ts';
import { meetsClientDemands } from '../tls/handshake-demands.ts';
import { DEFAULT_PLAN, type HandshakePlan } from './handshake-plan.ts';

/** The endpoint that serves a request, and the request's connection as that endpoint's policy sees it. */
export interface Admission {
  readonly endpoint: GatewayEndpoint;
  readonly connection: ClientConnection;
}

/** The endpoint that a connection's last request named. */
interface AdmittedEndpoint extends Admission {
  /** Result of the phase on_tcp_connect; null until it has run. */
  result: ConnectResult | null;
  /** The connection as the internal endpoint's policy sees it, once the phase has forwarded it to one. */
  inside: ClientConnection | null;
}

/**
 * Takes HTTP connections through the phase on_tcp_connect. Over HTTP, the endpoint is known only with a request, so the
 * phase runs with a connection's first request for each endpoint.
 */
export class ClientConnections {
  readonly #opened = new WeakMap<Socket, { at: number; plan: HandshakePlan }>();
  readonly #admitted = new WeakMap<Socket, AdmittedEndpoint>();

  /** @param internal finds the endpoints that policies forward to */
  constructor(private readonly internal: InternalLookup) {}

  /**
   * Registers a connection that is ready for requests.
   *
   * @param plan of its handshake, if there was one
   */
  opened(socket: Socket, plan: HandshakePlan = DEFAULT_PLAN): void {
    this.#opened.set(socket, { at: Date.now(), plan });
  }

  /**
   * Finds where a request goes.
   *
   * @param endpoint that the request names
   * @returns that endpoint or an internal one; null when the policy rejects the connection
   */
  admit(socket: Socket, endpoint: GatewayEndpoint): Admission | null {
    const admitted = this.#admittedTo(socket, endpoint);
    if (endpoint.policy.onTcpConnect === null) return admitted;
    if (admitted.result === null) {
      const result = this.#runConnectPhase(socket, admitted);
      if (result.kind === 'rejected') return null;
      admitted.result = result;
      admitted.inside = result.kind === 'internal' ? admitted.connection.forNextPolicy() : null;
    }
    if (admitted.result.kind !== 'internal' || admitted.inside === null) return admitted;
    // The endpoint that was online for an earlier request may be offline now.
    const target = internalTarget(admitted.result.url, this.internal);
    return target ? { endpoint: target, connection: admitted.inside } : null;
  }

  /** The connection as the endpoint's policy sees it. */
  connectionTo(endpoint: GatewayEndpoint, socket: Socket): ClientConnection {
    return this.#admittedTo(socket, endpoint).connection;
  }

  #runConnectPhase(socket: Socket, { connection, endpoint }: AdmittedEndpoint): ConnectResult {
    const { demands, connectPhase } = this.#opened.get(socket)?.plan ?? DEFAULT_PLAN;
    if (connectPhase?.endpoint === endpoint) return connectPhase.result;
    const connect: PolicyConnect = { connection, endpoint, record: recordFor(connection, endpoint) };
    const result = runConnectPhase(endpoint.policy, connect, this.internal);
    // The handshake was performed for another endpoint and cannot be repeated.
    const isMet = !connect.termination || meetsClientDemands(connect.termination, demands);
    return isMet ? result : { kind: 'rejected' };
  }

  /** The same object for consecutive requests to one endpoint; each endpoint's policy has results of its own. */
  #admittedTo(socket: Socket, endpoint: GatewayEndpoint): AdmittedEndpoint {
    const last = this.#admitted.get(socket);
    if (last?.endpoint === endpoint) return last;
    const { at = Date.now(), plan = DEFAULT_PLAN } = this.#opened.get(socket) ?? {};
    const connection = new ClientConnection(socket, at, clientTls(socket, verifiedAgainst(plan)));
    const before = plan.connectPhase?.endpoint === endpoint ? plan.connectPhase.connection : undefined;
    if (before?.results) connection.results = before.results;
    connection.record = before?.record;
    const admitted = { endpoint, connection, result: null, inside: null };
    this.#admitted.set(socket, admitted);
    return admitted;
  }
}

/** PEM of the authorities that the handshake verified the client's certificate against. */
function verifiedAgainst({ demands }: HandshakePlan): readonly string[] {
  return demands?.clientVerification === 'require-and-verify' ? demands.clientAuthorities : [];
}
