import { RpcError } from '../../../agent-protocol/rpc.ts';
import { ApiError } from '../../../lib/errors.ts';
import { isAddressOfUrl } from '../../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../../lib/network/loopback-names.ts';
import { isWithin } from '../../../lib/network/port-range.ts';
import type { OPERATIONS } from '../../../management/operations.ts';
import { botUsers } from '../../../management/resources/bot-user.ts';
import { type Endpoint, type EndpointFilters, endpoints } from '../../../management/resources/endpoint.ts';
import { reservedDomains } from '../../../management/resources/reserved-domain.ts';
import { tlsEdges } from '../../../management/resources/tls-edge.ts';
import { tunnelSessions, tunnels } from '../../../management/resources/tunnel.ts';
import { isGatewayName, isUnderBaseDomain } from '../../endpoints/domain-names.ts';
import { addressOfUrl, type CloudAddress } from '../../endpoints/endpoint-address.ts';
import type { LiveEndpoint } from '../../endpoints/live-view.ts';
import type { EndpointProtocol } from '../../endpoints/online-endpoint.ts';
import type { AuditRow } from '../../store/audit-log.ts';
import { addressColumns, type CloudEndpointRow } from '../../store/cloud-endpoints.ts';
import { changed } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { badRequest, refuse } from '../request.ts';
import { probeAt } from '../shown-probes.ts';
import { historyActions } from './history-actions.ts';
import { deviceChoice, deviceWith, liveActions } from './online-actions.ts';
import { checkPolicyText } from './policy-check.ts';
import { freeTcpPort, tcpAddressAt } from './tcp-address-actions.ts';

/** Reads what is online; creates, changes and deletes cloud endpoints. */
export function endpointActions(context: ApiContext): { endpoints: ActionsOf<typeof OPERATIONS.endpoints> } {
  const { store, live } = context;
  const { database, cloudEndpoints: rows } = store;
  const reads = liveActions(
    endpoints,
    {
      all: () => live.endpoints(),
      get: (id) => live.find.endpoint(id),
      below: (id) => live.find.endpointsBelow(id),
    },
    (endpoint) => showEndpoint(context, endpoint),
    (filters: EndpointFilters) => choiceOf(context, filters),
  );
  const stored = (id: string): CloudEndpointRow => {
    const row = rows.get(id);
    if (row === null && live.find.endpoint(id) !== null) {
      throw refuse(400, 18014, 'not a cloud endpoint: change it at the agent or the TLS edge that it belongs to');
    }
    return found(row, endpoints);
  };
  return {
    endpoints: {
      ...reads,
      getHistory: historyActions(context).ofEndpoint,
      getTopRequests: historyActions(context).topOfEndpoint,
      async create({ type: _, url, bindings = [], ...sent }, caller) {
        const address = readUrl(context, url, bindings);
        const warnings = await checkPolicy(context, sent.traffic_policy, address);
        const id = await database.write(() => {
          const now = store.now();
          const row = {
            ...{ id: store.ids.next('ep'), created_at: now, updated_at: now },
            ...{ ...sent, description: sent.description ?? null, metadata: sent.metadata ?? null },
            ...addressColumns({ ...address, port: address.port ?? freeTcpPort(context) }),
          };
          checkAddress(context, row);
          rows.insert(row);
          return row.id;
        }, caller);
        await inEffect(context);
        return { ...(await reads.get(id)), ...warned(warnings) };
      },
      async update(id, { url, bindings, ...sent }, caller) {
        const known = stored(id);
        const address = url === undefined ? null : readUrl(context, url, bindings ?? []);
        if (address === null) checkBindings(known, bindings);
        else if (address.protocol !== known.proto) throw schemeChanged(address);
        const text = sent.traffic_policy;
        const warnings = text === undefined ? [] : await checkPolicy(context, text, address ?? addressOf(known));
        await database.write(() => {
          const before = stored(id);
          const columns = address && addressColumns({ ...address, port: address.port ?? before.port });
          const row = { ...changed(before, sent), ...columns, updated_at: store.now() };
          checkAddress(context, row);
          rows.update(row);
        }, caller);
        await inEffect(context);
        return { ...(await reads.get(id)), ...warned(warnings) };
      },
      async delete(id, _body, caller) {
        await database.write(() => rows.delete(stored(id).id), caller);
        await inEffect(context);
      },
    },
  };
}

/** Resolves when all gateways serve what is committed. */
async function inEffect({ cloudEndpoints, live }: ApiContext): Promise<void> {
  await cloudEndpoints.settled();
  await live.revoke({});
}

/**
 * Gives a cloud endpoint a policy that it has had.
 *
 * @param check throws in the transaction unless the present policy may be replaced
 * @returns the event of the change; null: there is no such endpoint
 * @throws {ApiError} also when the policy cannot run any more
 */
export async function putEndpointPolicy(
  context: ApiContext,
  id: string,
  policy: string,
  check: (current: string) => void,
  caller: ApiCaller,
): Promise<AuditRow | null> {
  const { database, cloudEndpoints: rows, auditLog, now } = context.store;
  const known = rows.get(id);
  if (known === null) return null;
  check(known.traffic_policy);
  await checkPolicy(context, policy, addressOf(known));
  const event = await database.write(() => {
    const row = rows.get(id);
    if (row === null) return null;
    check(row.traffic_policy);
    rows.update({ ...row, traffic_policy: policy, updated_at: now() });
    return auditLog.latestPolicyChange(id);
  }, caller);
  await inEffect(context);
  return event;
}

/** The bindings follow from the URL, which stays. */
function checkBindings({ internal }: CloudEndpointRow, bindings: readonly string[] = []): void {
  const own = internal ? 'internal' : 'public';
  if (bindings.every((binding) => binding === own)) return;
  throw refuse(400, 18014, `bindings: the URL needs the binding ${own}; send another URL with another binding`);
}

function schemeChanged({ protocol }: CloudAddress): ApiError {
  return refuse(400, 18005, `url: the scheme cannot be changed; create another endpoint for ${protocol}`);
}

function addressOf({ proto, host, port, internal }: CloudEndpointRow): CloudAddress {
  return { protocol: proto as EndpointProtocol, host, port, internal };
}

/** @throws {ApiError} */
function readUrl({ addresses }: ApiContext, url: string, bindings: readonly string[]): CloudAddress {
  try {
    return addressOfUrl(url, bindings, addresses);
  } catch (error) {
    if (error instanceof RpcError) throw new ApiError(400, error.code, `url: ${error.message}`);
    throw error;
  }
}

/** What answers say besides of a policy that was sent. */
function warned(warnings: readonly string[]): Pick<Endpoint, 'policy_warnings'> {
  return warnings.length === 0 ? {} : { policy_warnings: [...warnings] };
}

/** @returns what is probably wrong with it */
async function checkPolicy(
  context: ApiContext,
  text: string,
  { protocol, internal }: CloudAddress,
): Promise<readonly string[]> {
  if (text.trim() === '') throw refuse(400, 18011, 'traffic_policy: is empty; a cloud endpoint serves by its policy');
  const { ipPolicies, store, policyKnowledge: knowledge = null } = context;
  const hasCertificateAuthority = (id: string) => store.certificateAuthorities.get(id) !== null;
  const ports = { ipPolicies, hasCertificateAuthority, knowledge };
  const { refusal, warnings } = await checkPolicyText(text, protocol, { ports, internal });
  if (refusal) throw badRequest(refusal);
  return warnings;
}

/** Checks in the transaction of the change whether an endpoint can have its address. */
function checkAddress(context: ApiContext, row: CloudEndpointRow): void {
  const { store, live, cloudEndpoints } = context;
  if (!row.internal && row.proto === 'tcp') checkPort(context, row);
  else if (!row.internal) checkName(context, row);
  for (const other of store.cloudEndpoints.at(row.place)) if (other.id !== row.id) checkPool(row, other);
  const isBoundHere = live.find.endpointsAt(row.place).some(({ type }) => type === 'ephemeral');
  if (isBoundHere || cloudEndpoints.isLeased(row.place)) {
    throw refuse(400, 334, 'url: an agent has bound it; stop that endpoint, or bind it as an internal one');
  }
}

function checkPort({ tcpPorts }: ApiContext, { port }: CloudEndpointRow): void {
  if (tcpPorts === null)
    throw refuse(400, 18022, 'url: tcp endpoints are disabled on this gateway: GATEWAY_TCP_PORTS is off');
  if (isWithin(port, [tcpPorts])) return;
  const { first, last } = tcpPorts;
  throw refuse(400, 307, `url: port ${port} is outside this gateway's tcp ports ${first} to ${last}`);
}

function checkName({ store, domains, addresses }: ApiContext, { host, proto }: CloudEndpointRow): void {
  if (domains.ip && isBelowLocalhost(host))
    throw refuse(400, 18022, 'url: without a domain, only endpoints of agents, tcp and internal ones are reachable');
  if (isGatewayName(host, domains)) throw refuse(400, 450, 'url: the gateway uses this name itself; choose another');
  const ports = proto === 'http' ? [] : [addresses.ports.https, 443];
  if (ports.some((port) => store.tlsEdges.holderOf(`${host}:${port}`) !== null)) {
    throw refuse(400, 18009, 'url: a TLS edge serves this name');
  }
  const covering = store.reservedDomains.covering(host);
  const isWildcard = host.startsWith('*.');
  const isFree = !isWildcard && isUnderBaseDomain(host, domains);
  if (isFree || (isWildcard ? covering?.domain === host : covering !== null)) return;
  throw refuse(400, 18006, `url: no reserved domain matches ${host}; reserve it first`);
}

function checkPool(row: CloudEndpointRow, other: CloudEndpointRow): void {
  if (row.pooling_enabled && other.pooling_enabled && row.proto === other.proto) return;
  if (row.pooling_enabled && !other.pooling_enabled) {
    throw refuse(
      400,
      18016,
      `pooling_enabled: the cloud endpoint ${other.id} has this URL without pooling; enable it there, too`,
    );
  }
  if (!row.pooling_enabled && other.pooling_enabled) {
    throw refuse(400, 18017, `pooling_enabled: the cloud endpoint ${other.id} has this URL with pooling; send true`);
  }
  throw refuse(
    400,
    18009,
    `url: the cloud endpoint ${other.id} has this URL; update or delete it, or choose another URL`,
  );
}

/** Without a domain, clients use the address and port of the URL. */
function hostportOf({ host, port, url, internal }: LiveEndpoint): string {
  const shown = internal || !URL.canParse(url) ? null : new URL(url);
  return shown && isAddressOfUrl(shown.hostname) ? shown.host : `${host}:${port}`;
}

function domainUrlOf({ addresses, domains }: ApiContext, { proto, host, port, internal }: LiveEndpoint): string | null {
  const address = { protocol: proto as EndpointProtocol, host, port, internal };
  return addresses.byPort?.domainUrlOf(address, domains, addresses.ports.https) ?? null;
}

/** An endpoint that is online, as the API answers it. */
export function showEndpoint(context: ApiContext, endpoint: LiveEndpoint): Endpoint {
  const { store, links } = context;
  const device = deviceWith(context, endpoint.credentialId);
  const domain = store.reservedDomains.covering(endpoint.host);
  const isAddress = endpoint.proto === 'tcp' && !endpoint.internal;
  const tcp_addr = isAddress ? tcpAddressAt(context, endpoint.port) : null;
  const probe = probeAt(context, endpoint.url);
  const domainUrl = domainUrlOf(context, endpoint);
  return {
    id: endpoint.id,
    uri: links.of(endpoints, endpoint.id),
    created_at: endpoint.createdAt,
    updated_at: endpoint.updatedAt,
    type: endpoint.type,
    proto: endpoint.proto,
    scheme: endpoint.proto,
    hostport: hostportOf(endpoint),
    host: endpoint.host,
    port: endpoint.port,
    url: endpoint.url,
    public_url: endpoint.url,
    ...(domainUrl !== null && { domain_url: domainUrl }),
    region: '',
    metadata: endpoint.metadata,
    description: endpoint.description,
    name: endpoint.name,
    ...(domain && { domain: links.ref(reservedDomains, domain.id) }),
    ...(tcp_addr && { tcp_addr }),
    ...(endpoint.tunnelId && { tunnel: links.ref(tunnels, endpoint.tunnelId) }),
    ...(endpoint.sessionId && { tunnel_session: links.ref(tunnelSessions, endpoint.sessionId) }),
    ...(endpoint.edgeId && { edge: links.ref(tlsEdges, endpoint.edgeId) }),
    ...(endpoint.ownerId && { principal: links.ref(botUsers, endpoint.ownerId) }),
    ...(device && { device }),
    bindings: [endpoint.internal ? 'internal' : 'public'],
    ...(endpoint.trafficPolicy !== undefined && { traffic_policy: endpoint.trafficPolicy }),
    ...(endpoint.upstreamUrl && { upstream_url: endpoint.upstreamUrl }),
    pooling_enabled: endpoint.poolingEnabled,
    ...(endpoint.access && { access: [...endpoint.access] }),
    ...(endpoint.admission && { people: endpoint.admission }),
    ...(probe && { probe }),
  };
}

function choiceOf(context: ApiContext, filters: EndpointFilters) {
  const ofDevice = deviceChoice(context, filters);
  const { protocol, type } = filters;
  return {
    isWanted(endpoint: LiveEndpoint): boolean {
      if (protocol !== undefined && endpoint.proto !== protocol) return false;
      if (type !== undefined && endpoint.type !== type) return false;
      const { id, url, name, description, metadata, credentialId } = endpoint;
      return ofDevice.isWanted(credentialId, [id, url, name, description, metadata]);
    },
    sorted: {
      url: ({ url }: LiveEndpoint) => url,
      device: ({ credentialId }: LiveEndpoint) => ofDevice.nameOf(credentialId),
      created_at: ({ createdAt }: LiveEndpoint) => createdAt,
    },
  };
}
