import { hash } from 'node:crypto';
import { ksuidOf } from '../../lib/ids.ts';
import { type CompiledPolicy, NO_POLICY } from '../../traffic-policy/engine.ts';
import type { PolicyEndpoint } from '../../traffic-policy/policy-subjects.ts';
import type { HandshakeDemands } from '../edge/tls/handshakes.ts';
import type { EndpointPolicies } from '../endpoints/endpoint-policies.ts';
import { type LiveEndpoint, WITHOUT_AGENT } from '../endpoints/live-view.ts';
import { EDGE_TERMINATION } from '../endpoints/online-endpoint.ts';
import type { Store } from '../store/store.ts';
import type { TlsEdgeRow } from '../store/tls-edges.ts';

export interface ServedEdge {
  readonly row: TlsEdgeRow;
  /** Perhaps a wildcard. */
  readonly host: string;
  readonly port: number;
}

export interface PreparedEdge {
  /** Runs before the handshake: restricts the client's address. */
  readonly restriction: CompiledPolicy;
  /** How TLS is terminated; null when it passes through. */
  readonly demands: HandshakeDemands | null;
  /** Runs after the handshake, if there is one. */
  readonly policy: CompiledPolicy;
  /** Null when missing or disabled. */
  readonly backendId: string | null;
}

const NO_FRAME = { before: {}, after: {} };
const ANSWERS = 'bkdhr_';

/** Compiles the modules of an edge; disabled ones are ignored. @throws {PolicyRefused} for an invalid policy */
export async function prepareEdge(
  row: TlsEdgeRow,
  store: Pick<Store, 'certificateAuthorities'>,
  policies: EndpointPolicies,
): Promise<PreparedEdge> {
  const { ip_restriction, traffic_policy, backend } = row;
  const compile = (text: string) =>
    policies.compile(text, { protocol: 'tls', url: row.id, payer: row.id, internal: false, frame: NO_FRAME });
  const text = traffic_policy?.enabled ? traffic_policy.value : '';
  const restriction = ip_restriction?.enabled
    ? await compile(restrictionText(ip_restriction.ip_policy_ids))
    : NO_POLICY;
  const policy = await compile(text);
  const backendId = backend?.enabled ? backend.backend_id : null;
  // The gateway answers fixed responses itself, so no agent could terminate TLS.
  const isTerminated = policy.terminatesTls || backendId?.startsWith(ANSWERS) === true;
  return { restriction, demands: demandsOf(row, isTerminated, store), policy, backendId };
}

function restrictionText(ip_policies: readonly string[]): string {
  return JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'restrict-ips', config: { ip_policies } }] }] });
}

function demandsOf(
  { tls_termination: termination, mutual_tls: mutual }: TlsEdgeRow,
  isTerminated: boolean,
  { certificateAuthorities }: Pick<Store, 'certificateAuthorities'>,
): HandshakeDemands | null {
  const atEdge = termination?.enabled && termination.terminate_at === 'edge' ? termination : null;
  if (!atEdge && !mutual?.enabled && !isTerminated) return null;
  const minVersion = (atEdge?.min_version ?? EDGE_TERMINATION.minVersion) as HandshakeDemands['minVersion'];
  const ids = mutual?.enabled ? mutual.certificate_authority_ids : [];
  return { ...EDGE_TERMINATION, minVersion, clientAuthorities: ids.map((id) => pemOf(id, certificateAuthorities)) };
}

/** A missing authority fails the edge: without it, every client would be accepted. */
function pemOf(id: string, authorities: Store['certificateAuthorities']): string {
  const row = authorities.get(id);
  if (!row) throw new Error(`certificate authority ${id} not found`);
  return row.ca_pem;
}

export function endpointOf(served: ServedEdge): PolicyEndpoint {
  const { host, port } = served;
  return { id: edgeEndpointId(served), url: `tls://${host}:${port}`, protocol: 'tls', host, port };
}

/** The hostports of TLS edges as endpoints that are online. */
export function edgeEndpoints(served: Iterable<ServedEdge>): LiveEndpoint[] {
  return [...served].filter(({ row }) => leadsSomewhere(row)).map(showEdge);
}

/** Whether clients of an edge can reach anything: a backend, or what its traffic policy forwards to. */
function leadsSomewhere({ backend, traffic_policy: policy }: TlsEdgeRow): boolean {
  return (backend?.enabled && backend.backend_id !== '') || policy?.enabled === true;
}

/** Digits of the timestamp at the start of an identifier. */
const TIME_DIGITS = 5;
const DIGITS = 27;

/** `ep_…` for a hostport: stable, and with the edge's creation time. */
function edgeEndpointId({ row, host, port }: ServedEdge): string {
  const rest = hash('sha256', `${row.id} ${host}:${port}`).slice(0, DIGITS - TIME_DIGITS);
  return `ep_${ksuidOf(row.id).slice(0, TIME_DIGITS)}${rest}`;
}

function showEdge(served: ServedEdge): LiveEndpoint {
  const { row, host, port } = served;
  return {
    id: edgeEndpointId(served),
    type: 'edge',
    internal: false,
    proto: 'tls',
    host,
    port,
    url: `tls://${host}${port === 443 ? '' : `:${port}`}`,
    createdAt: row.created_at,
    updatedAt: row.created_at,
    metadata: row.metadata ?? '',
    description: row.description ?? '',
    ...WITHOUT_AGENT,
    edgeId: row.id,
    poolingEnabled: false,
    traffic: null,
  };
}
