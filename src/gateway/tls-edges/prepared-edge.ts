import { type CompiledPolicy, NO_POLICY } from '../../traffic-policy/engine.ts';
import type { PolicyEndpoint } from '../../traffic-policy/policy-subjects.ts';
import type { HandshakeDemands } from '../edge/tls/tls-contexts.ts';
import { EDGE_TERMINATION } from '../endpoints/endpoint.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import type { Store } from '../store/store.ts';
import type { TlsEdgeRow } from '../store/tls-edges.ts';
import type { ServedEdge } from './edge-index.ts';
import { edgeEndpointId } from './edge-live.ts';

/** A TLS edge made ready to run. */
export interface PreparedEdge {
  /** Before the handshake: whether the client's address may come in. */
  readonly restriction: CompiledPolicy;
  /** How TLS is ended; null when it goes through as it is. */
  readonly demands: HandshakeDemands | null;
  /** After the handshake, if there is one. */
  readonly policy: CompiledPolicy;
  /** Null when there is none, or it is switched off. */
  readonly backendId: string | null;
}

type Parts = { store: Pick<Store, 'certificateAuthorities'>; policies: EndpointPolicies };

const NO_FRAME = { before: {}, after: {} };
const ANSWERS = 'bkdhr_';

/**
 * Makes an edge ready to run; a module that is switched off is as good as none.
 *
 * @throws {PolicyRefused} when its traffic policy, or an IP policy that it names, cannot be used
 */
export async function prepareEdge(row: TlsEdgeRow, { store, policies }: Parts): Promise<PreparedEdge> {
  const { ip_restriction, traffic_policy, backend } = row;
  const compile = (text: string) =>
    policies.compile(text, { protocol: 'tls', url: row.id, internal: false, frame: NO_FRAME });
  const text = traffic_policy?.enabled ? traffic_policy.value : '';
  await policies.load(text);
  const restriction = ip_restriction?.enabled ? compile(restrictionText(ip_restriction.ip_policy_ids)) : NO_POLICY;
  const policy = compile(text);
  const backendId = backend?.enabled ? backend.backend_id : null;
  // What the gateway answers itself has nobody else to end TLS.
  const isEnded = policy.terminatesTls || backendId?.startsWith(ANSWERS) === true;
  return { restriction, demands: demandsOf(row, isEnded, store), policy, backendId };
}

function restrictionText(ip_policies: readonly string[]): string {
  return JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { ip_policies } }] }] });
}

function demandsOf(
  { tls_termination: termination, mutual_tls: mutual }: TlsEdgeRow,
  isEnded: boolean,
  { certificateAuthorities }: Parts['store'],
): HandshakeDemands | null {
  const atEdge = termination?.enabled && termination.terminate_at === 'edge' ? termination : null;
  if (!atEdge && !mutual?.enabled && !isEnded) return null;
  const minVersion = (atEdge?.min_version ?? EDGE_TERMINATION.minVersion) as HandshakeDemands['minVersion'];
  const ids = mutual?.enabled ? mutual.certificate_authority_ids : [];
  return { ...EDGE_TERMINATION, minVersion, clientAuthorities: ids.map((id) => pemOf(id, certificateAuthorities)) };
}

/** Without it, everybody would come in. */
function pemOf(id: string, authorities: Parts['store']['certificateAuthorities']): string {
  const row = authorities.get(id);
  if (!row) throw new Error(`the certificate authority ${id} does not exist any more`);
  return row.ca_pem;
}

/** What policies see of an edge. */
export function endpointOf(served: ServedEdge): PolicyEndpoint {
  const { host, port } = served;
  return { id: edgeEndpointId(served), url: `tls://${host}:${port}`, protocol: 'tls', host, port };
}
