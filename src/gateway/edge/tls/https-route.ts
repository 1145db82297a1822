import type { TLSSocket } from 'node:tls';
import type { TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { resetConnection } from '../http/reset-connection.ts';
import type { AgentConnections } from './agent-connections.ts';
import type { ConnectionSlots, IdleChoice } from './connection-slots.ts';
import type { Handshakes } from './handshakes.ts';
import type { PendingConnection, TlsRoute } from './tls-route.ts';

export interface HttpsConnection {
  /** What the handshake demands of the client; null for the defaults. */
  readonly demands: TlsTermination | null;
  /** Takes the connection over after the handshake. */
  serve(secured: TLSSocket): void;
}

export interface HttpsHandler {
  /**
   * Runs the part of the policy that comes before the handshake.
   *
   * @param endpoint that most requests will be for
   * @returns null when the policy rejects the connection
   */
  admit(pending: PendingConnection, endpoint: GatewayEndpoint | undefined): HttpsConnection | null;
  /** Closes the longest idle connection of a choice; returns false when all are busy. */
  closeIdle(choice: IdleChoice): boolean;
  /** No connection could be closed for a new one. */
  onFull(): void;
}

export interface HttpsRouteOptions {
  https: HttpsHandler;
  handshakes: Handshakes;
  slots: ConnectionSlots;
  /** Finds the endpoint that most HTTPS requests for a name will be for. */
  endpointFor(hostName: string): GatewayEndpoint | undefined;
  /** Agents that connect without a host name. */
  agents: AgentConnections | undefined;
  /** Whether clients that request a name may use HTTP/2. */
  http2(hostName: string): boolean;
}

/** Clients that offer protocols, but none of these, are refused. */
const HTTP1 = ['http/1.1', 'http/1.0'];
const HTTP2_OR_1 = ['h2', ...HTTP1];

/** The route of last resort: performs the handshake and serves HTTPS, whatever the host name. */
export class HttpsRoute implements TlsRoute {
  constructor(private readonly options: HttpsRouteOptions) {}

  async serve(pending: PendingConnection): Promise<true> {
    const { https, endpointFor, handshakes, http2, agents } = this.options;
    const endpoint = endpointFor(pending.hostName);
    const admitted = https.admit(pending, endpoint);
    if (admitted === null) {
      resetConnection(pending.socket);
      return true;
    }
    const { demands } = admitted;
    const protocols = http2(pending.hostName) ? HTTP2_OR_1 : HTTP1;
    const secured = await handshakes.secure(pending, { protocols, ...(demands && { demands }) });
    if (secured === null) return true;
    const mayBeAgent = pending.hostName === '' && pending.hello.protocols.length === 0;
    if (agents && mayBeAgent) this.#detectAgent(agents, pending, secured, admitted);
    else this.#serve(pending, secured, admitted);
    return true;
  }

  #detectAgent(agents: AgentConnections, pending: PendingConnection, secured: TLSSocket, https: HttpsConnection): void {
    const { slots } = this.options;
    slots.allowEviction(pending.socket);
    secured.once('readable', () => slots.protect(pending.socket));
    agents.detect(secured, () => this.#serve(pending, secured, https));
  }

  #serve({ socket }: PendingConnection, secured: TLSSocket, https: HttpsConnection): void {
    this.options.slots.expectProgress(socket);
    https.serve(secured);
  }
}
