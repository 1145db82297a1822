import type { CompiledPolicy } from '../../../traffic-policy/engine.ts';
import type { PolicyConnect, TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';
import type { InternalLookup } from '../../endpoints/endpoint-directory.ts';
import type { ClientConnection } from './client-connection.ts';
import { internalTarget, MAX_FORWARDS, TARGET_OFFLINE } from './internal-targets.ts';

/** What becomes of a connection: its upstream gets it, or an internal endpoint, or nobody. */
export type ConnectResult = 'upstream' | 'cut' | { readonly url: string; readonly target: GatewayEndpoint };

/** Runs the phase on_tcp_connect of a policy. */
export function runConnectPhase(
  { onTcpConnect }: CompiledPolicy,
  connect: PolicyConnect,
  internal: InternalLookup,
): ConnectResult {
  let outcome = onTcpConnect?.(connect);
  while (outcome?.kind === 'forward') {
    const target = internalTarget(outcome.url, internal);
    if (target) return { url: outcome.url, target };
    if (outcome.resume === null) return 'cut';
    outcome = outcome.resume(TARGET_OFFLINE);
  }
  return outcome === undefined ? 'upstream' : 'cut';
}

/** The same where nothing can be forwarded: false when the connection is to be cut. */
export function isLetThrough(policy: CompiledPolicy, connect: PolicyConnect): boolean {
  return runConnectPhase(policy, connect, () => undefined) === 'upstream';
}

/** Where a connection is to be taken. */
export interface Destination {
  readonly endpoint: GatewayEndpoint;
  /** Those whose policies have forwarded it there. */
  readonly through: readonly GatewayEndpoint[];
  /** As the policies that it has come through see it. */
  readonly connection: ClientConnection;
  /** How the policies want TLS to be ended; undefined when none of them says. */
  readonly termination: TlsTermination | undefined;
}

/**
 * Follows a connection through the policy of its endpoint, and of those that it is forwarded to.
 *
 * @returns null when it is to be cut
 */
export function destinationOf(
  endpoint: GatewayEndpoint,
  connection: ClientConnection,
  internal: InternalLookup,
): Destination | null {
  let at: Destination = { endpoint, through: [], connection, termination: undefined };
  for (let forwards = 0; forwards <= MAX_FORWARDS; forwards++) {
    const connect: PolicyConnect = { connection: at.connection, endpoint: at.endpoint };
    const result = runConnectPhase(at.endpoint.policy, connect, internal);
    if (result === 'cut') return null;
    const termination = joinedTermination(at.termination ?? null, connect.termination ?? null) ?? undefined;
    if (result === 'upstream') return { ...at, termination };
    const through = [...at.through, at.endpoint];
    at = { endpoint: result.target, through, connection: at.connection.anew(), termination };
  }
  return null;
}

/**
 * What was asked for before, such as by the agent when it bound the endpoint, and a policy's wishes for this connection,
 * which go first; but clients are never asked for less than before.
 */
export function joinedTermination(bound: TlsTermination | null, wished: TlsTermination | null): TlsTermination | null {
  if (wished === null || bound === null) return wished ?? bound;
  const { certificate, privateKey } = wished.certificate === null ? bound : wished;
  const { clientAuthorities, clientVerification } = wished.clientAuthorities.length === 0 ? bound : wished;
  return { ...wished, certificate, privateKey, clientAuthorities, clientVerification };
}

type ClientDemands = Pick<TlsTermination, 'clientAuthorities' | 'clientVerification'>;

/** Whether a handshake asked of the client what a policy wants of it. */
export function demandsSame(wanted: ClientDemands, done: ClientDemands | null): boolean {
  if (wanted.clientAuthorities.length === 0) return true;
  const asked = ({ clientAuthorities, clientVerification }: ClientDemands) =>
    [clientVerification, ...clientAuthorities].join('\n');
  return done !== null && asked(wanted) === asked(done);
}
