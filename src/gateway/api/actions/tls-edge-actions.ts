import type { z } from 'zod';
import { httpResponseBackends, tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { certificateAuthorities } from '../../../management/resources/certificate.ts';
import { ipPolicies } from '../../../management/resources/ip-policy.ts';
import type { Refusal } from '../../../management/resources/refusal.ts';
import {
  type TlsEdge,
  type TlsEdgeModuleName,
  type TlsEdgeUpdate,
  terminationConflict,
  type tlsEdgeModules,
  tlsEdges,
} from '../../../management/resources/tls-edge.ts';
import { isGatewayName } from '../../endpoints/domain-names.ts';
import { namePlace, tcpPlace } from '../../endpoints/endpoint-address.ts';
import type { LiveEndpoint } from '../../endpoints/live-view.ts';
import type { AuditRow } from '../../store/audit-log.ts';
import { changed } from '../../store/sql/table.ts';
import type { EdgeModules, TlsEdgeRow } from '../../store/tls-edges.ts';
import type { ApiContext } from '../api-context.ts';
import { type Actions, type ApiCaller, found } from '../operation-router.ts';
import { badRequest, refuse } from '../request.ts';
import { checkPolicyText } from './policy-check.ts';

type Update = z.output<typeof TlsEdgeUpdate>;
type ModuleBody<Name extends TlsEdgeModuleName> = z.output<(typeof tlsEdgeModules)[Name]['body']>;
type ModuleAnswer<Name extends TlsEdgeModuleName> = z.output<(typeof tlsEdgeModules)[Name]['answer']>;

interface ModuleActions<Name extends TlsEdgeModuleName> {
  /** @throws {ApiError} 404 when the edge is unknown or has no such module */
  get(id: string): ModuleAnswer<Name>;
  replace(id: string, body: ModuleBody<Name>, caller: ApiCaller): Promise<ModuleAnswer<Name>>;
  delete(id: string, body: undefined, caller: ApiCaller): Promise<void>;
}

export function tlsEdgeActions(context: ApiContext) {
  const { store } = context;
  const { database, tlsEdges: rows } = store;
  const stored = (id: string) => found(rows.get(id), tlsEdges);
  /** Applies an update in one transaction, and checks it together with the unchanged members. */
  const update = async (id: string, body: Update, caller: ApiCaller) => {
    stored(id);
    const refusal = await edgePolicyRefusal(context, body);
    return database.write(() => {
      const row = applyUpdate(stored(id), body);
      checkEdge(context, row, body, refusal);
      rows.update(row);
      return row;
    }, caller);
  };
  const edges: Actions<typeof tlsEdges> = {
    get: (id) => showEdge(context, stored(id)),
    list: (before, limit) => rows.page(before, limit).map((row) => showEdge(context, row)),
    create: async (body, caller) => {
      const refusal = await edgePolicyRefusal(context, body);
      return database.write(() => {
        const row = applyUpdate({ ...BARE_EDGE, id: store.ids.next('edgtls'), created_at: store.now() }, body);
        checkEdge(context, row, body, refusal);
        rows.insert(row);
        return showEdge(context, row);
      }, caller);
    },
    update: async (id, ...sent) => showEdge(context, await update(id, ...sent)),
    delete: (id, _body, caller) =>
      database.write(() => {
        stored(id);
        rows.delete(id);
      }, caller),
  };
  const module = <Name extends TlsEdgeModuleName>(name: Name): ModuleActions<Name> => ({
    get: (id) => shownModule(context, stored(id), name),
    replace: async (id, body, caller) => shownModule(context, await update(id, { [name]: body }, caller), name),
    delete: (id, _body, caller) =>
      database.write(() => {
        rows.update({ ...stored(id), [name]: null });
      }, caller),
  });
  return {
    tlsEdges: edges,
    tlsEdgeBackend: module('backend'),
    tlsEdgeIpRestriction: module('ip_restriction'),
    tlsEdgeMutualTls: module('mutual_tls'),
    tlsEdgeTlsTermination: module('tls_termination'),
    tlsEdgeTrafficPolicy: module('traffic_policy'),
  };
}

/**
 * Gives a TLS edge a policy that it has had.
 *
 * @param check throws in the transaction unless the present policy may be replaced
 * @returns the event of the change; null: there is no such edge
 * @throws {ApiError} also when the policy cannot run any more
 */
export async function putEdgePolicy(
  context: ApiContext,
  id: string,
  policy: EdgeModules['traffic_policy'],
  check: (current: EdgeModules['traffic_policy']) => void,
  caller: ApiCaller,
): Promise<AuditRow | null> {
  const { database, tlsEdges: rows, auditLog } = context.store;
  const known = rows.get(id);
  if (known === null) return null;
  check(known.traffic_policy);
  const refusal = policy && (await edgePolicyRefusal(context, { traffic_policy: policy }));
  if (refusal) throw badRequest(refusal);
  return database.write(() => {
    const row = rows.get(id);
    if (row === null) return null;
    check(row.traffic_policy);
    rows.update({ ...row, traffic_policy: policy });
    return auditLog.latestPolicyChange(id);
  }, caller);
}

const BARE_EDGE: Omit<TlsEdgeRow, 'id' | 'created_at'> = {
  description: null,
  metadata: null,
  hostports: null,
  backend: null,
  ip_restriction: null,
  mutual_tls: null,
  tls_termination: null,
  traffic_policy: null,
};

/** A sent module replaces the stored one completely; the others stay. */
function applyUpdate(row: TlsEdgeRow, { tls_termination: sent, ...body }: Update): TlsEdgeRow {
  const tls_termination = sent && { ...sent, min_version: sent.min_version ?? null };
  return changed(row, { ...body, tls_termination });
}

async function edgePolicyRefusal({ ipPolicies }: ApiContext, { traffic_policy }: Update): Promise<Refusal | null> {
  const options = { ports: { ipPolicies }, fixedTermination: true };
  return traffic_policy ? (await checkPolicyText(traffic_policy.value, 'tls', options)).refusal : null;
}

/** Checks only the references of the sent members: stored ones may have been deleted since. */
function checkEdge(context: ApiContext, row: TlsEdgeRow, body: Update, refusal: Refusal | null): void {
  checkReferences(context, body);
  if (refusal) throw badRequest(refusal);
  const conflict = terminationConflict(row);
  if (conflict) throw badRequest(conflict);
  for (const hostport of body.hostports ?? []) checkHostport(context, row.id, hostport);
}

function checkReferences({ store }: ApiContext, { backend, ip_restriction, mutual_tls }: Update): void {
  if (backend && !backendOf(store, backend.backend_id)) {
    throw refuse(400, 6501, 'backend: no backend has this id');
  }
  if (ip_restriction?.ip_policy_ids.some((id) => !store.ipPolicies.get(id))) {
    throw refuse(400, 7007, 'ip_restriction: no IP policy has this id');
  }
  if (mutual_tls?.certificate_authority_ids.some((id) => !store.certificateAuthorities.get(id))) {
    throw refuse(400, 7072, 'mutual_tls: no certificate authority has this id');
  }
}

function backendOf(store: ApiContext['store'], id: string): object | null {
  return store.httpResponseBackends.get(id) ?? store.tunnelGroupBackends.get(id);
}

function checkHostport({ store, live, domains, addresses }: ApiContext, edgeId: string, hostport: string): void {
  const host = hostport.slice(0, hostport.lastIndexOf(':'));
  const port = Number(hostport.slice(host.length + 1));
  if (isGatewayName(host, domains))
    throw refuse(400, 450, 'hostports: the gateway uses this name itself; choose another name');
  const holder = store.tlsEdges.holderOf(hostport);
  if (holder !== null && holder !== edgeId) throw refuse(400, 7122, 'hostports: in use by another TLS edge');
  const isShared = port === addresses.ports.https || port === 443;
  if (isShared && store.cloudEndpoints.at(namePlace('tls', host)).length > 0)
    throw refuse(400, 7132, 'hostports: in use by a cloud endpoint');
  const places = [namePlace('http', host), namePlace('tls', host), tcpPlace(port)];
  const isBound = places
    .flatMap((place) => live.find.endpointsAt(place))
    .some((endpoint) => endpoint.edgeId === null && addressesOf(endpoint).includes(hostport));
  if (isBound) throw refuse(400, 7132, 'hostports: in use by an agent');
}

/** An address on the shared TLS port also counts as port 443, which may be redirected to it. */
function addressesOf({ proto, host, port }: LiveEndpoint): string[] {
  const isShared = proto === 'https' || proto === 'tls';
  return [`${host}:${port}`, ...(isShared ? [`${host}:443`] : [])];
}

function showEdge(context: ApiContext, row: TlsEdgeRow): TlsEdge {
  return {
    id: row.id,
    uri: context.links.of(tlsEdges, row.id),
    created_at: row.created_at,
    description: row.description,
    metadata: row.metadata,
    hostports: row.hostports,
    ...showModules(context, row),
    policy: null,
  };
}

type ShownModules = { [Name in TlsEdgeModuleName]: ModuleAnswer<Name> | null };

function showModules({ links }: ApiContext, row: EdgeModules): ShownModules {
  const { backend, ip_restriction, mutual_tls, tls_termination, traffic_policy } = row;
  return {
    backend: backend && {
      enabled: backend.enabled,
      backend: links.ref(backendKind(backend.backend_id), backend.backend_id),
    },
    ip_restriction: ip_restriction && {
      enabled: ip_restriction.enabled,
      ip_policies: ip_restriction.ip_policy_ids.map((id) => links.ref(ipPolicies, id)),
    },
    mutual_tls: mutual_tls && {
      enabled: mutual_tls.enabled,
      certificate_authorities: mutual_tls.certificate_authority_ids.map((id) => links.ref(certificateAuthorities, id)),
    },
    tls_termination,
    traffic_policy,
  };
}

function backendKind(id: string): { path: string } {
  return id.startsWith(httpResponseBackends.idPrefix) ? httpResponseBackends : tunnelGroupBackends;
}

function shownModule<Name extends TlsEdgeModuleName>(
  context: ApiContext,
  row: TlsEdgeRow,
  name: Name,
): ModuleAnswer<Name> {
  const module = showModules(context, row)[name];
  // ngrok's Python client fails on null.
  if (module === null) throw refuse(404, tlsEdges.unknownIdCode, `the TLS edge has no ${name} module`);
  return module;
}
