import { hash } from 'node:crypto';
import { ksuidOf } from '../../lib/ids.ts';
import { type LiveEndpoint, WITHOUT_AGENT } from '../endpoints/live-view.ts';
import type { TlsEdgeRow } from '../store/tls-edges.ts';
import type { ServedEdge, TlsEdgeIndex } from './edge-index.ts';

/** The hostports of TLS edges as endpoints that are online. */
export function edgeEndpoints(edges: TlsEdgeIndex): LiveEndpoint[] {
  return [...edges.served()].filter(({ row }) => leadsSomewhere(row)).map(showEdge);
}

/** Whether clients of an edge can reach anything: a backend, or what its traffic policy forwards to. */
function leadsSomewhere({ backend, traffic_policy: policy }: TlsEdgeRow): boolean {
  return (backend?.enabled && backend.backend_id !== '') || policy?.enabled === true;
}

/** Digits of the timestamp at the start of an identifier. */
const TIME_DIGITS = 5;
const DIGITS = 27;

/** `ep_…` for a hostport: stable, and with the edge's creation time. */
export function edgeEndpointId({ row, host, port }: ServedEdge): string {
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
