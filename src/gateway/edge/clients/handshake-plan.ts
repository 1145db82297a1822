import type { PolicyConnect, TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { ClientConnection, HelloTls } from '../connections/client-connection.ts';
import { type ConnectResult, recordFor, runConnectPhase } from '../connections/connect-phase.ts';
import { mergeDemands } from '../tls/handshake-demands.ts';
import type { HelloClient } from '../tls/handshakes.ts';

/** What is known of an HTTPS connection before its handshake. */
export interface HandshakePlan {
  /** What the handshake demands of the client; null for the defaults. */
  readonly demands: TlsTermination | null;
  /** The connect phase, if the policy has run it already. */
  readonly connectPhase: {
    readonly endpoint: GatewayEndpoint;
    readonly connection: ClientConnection;
    readonly result: ConnectResult;
  } | null;
}

export const DEFAULT_PLAN: HandshakePlan = { demands: null, connectPhase: null };

/**
 * Plans the handshake of a connection. A policy that terminates TLS runs its phase on_tcp_connect now: it decides how.
 *
 * @param endpoint that the connection's host name belongs to
 * @returns null when the policy rejects the connection
 */
export function planHandshake(
  { socket, hostName }: HelloClient,
  endpoint: GatewayEndpoint | undefined,
  internal: InternalLookup,
): HandshakePlan | null {
  if (!endpoint) return DEFAULT_PLAN;
  const { policy, tls } = endpoint;
  if (!policy.terminatesTls) return { demands: tls, connectPhase: null };
  const connection = new ClientConnection(socket, Date.now(), new HelloTls(hostName));
  const connect: PolicyConnect = { connection, endpoint, record: recordFor(connection, endpoint) };
  const result = runConnectPhase(policy, connect, internal);
  if (result.kind === 'rejected') return null;
  return { demands: mergeDemands(tls, connect.termination ?? null), connectPhase: { endpoint, connection, result } };
}
