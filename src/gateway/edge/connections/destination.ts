import type { PolicyConnect, TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import { mergeDemands } from '../tls/handshake-demands.ts';
import type { ClientConnection } from './client-connection.ts';
import { runConnectPhase } from './connect-phase.ts';
import { MAX_FORWARDS } from './internal-targets.ts';

export interface Destination {
  readonly endpoint: GatewayEndpoint;
  /** Endpoints whose policies have forwarded the connection. */
  readonly through: readonly GatewayEndpoint[];
  /** The connection as the last policy sees it. */
  readonly connection: ClientConnection;
  /** How the policies terminate TLS; null when none of them does. */
  readonly termination: TlsTermination | null;
}

/**
 * Follows a connection through the policies of its endpoint and of all endpoints that it is forwarded to.
 *
 * @returns null when a policy rejects the connection, or it is forwarded too often
 */
export function findDestination(
  endpoint: GatewayEndpoint,
  connection: ClientConnection,
  internal: InternalLookup,
): Destination | null {
  let at: Destination = { endpoint, through: [], connection, termination: null };
  for (let forwards = 0; forwards <= MAX_FORWARDS; forwards++) {
    const connect: PolicyConnect = { connection: at.connection, endpoint: at.endpoint };
    const result = runConnectPhase(at.endpoint.policy, connect, internal);
    if (result.kind === 'rejected') return null;
    const termination = mergeDemands(at.termination, connect.termination ?? null);
    if (result.kind === 'upstream') return { ...at, termination };
    const through = [...at.through, at.endpoint];
    at = { endpoint: result.target, through, connection: at.connection.forNextPolicy(), termination };
  }
  return null;
}
