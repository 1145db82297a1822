import { tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { botUsers } from '../../../management/resources/bot-user.ts';
import { credentials } from '../../../management/resources/credential.ts';
import { devices } from '../../../management/resources/device.ts';
import { type Endpoint, endpoints } from '../../../management/resources/endpoint.ts';
import { reservedDomains } from '../../../management/resources/reserved-domain.ts';
import type { ReadableResource } from '../../../management/resources/resource.ts';
import { tlsEdges } from '../../../management/resources/tls-edge.ts';
import { type Tunnel, type TunnelSession, tunnelSessions, tunnels } from '../../../management/resources/tunnel.ts';
import type { LiveEndpoint, LiveSession, LiveTunnel, SessionCommand } from '../../endpoints/live-view.ts';
import type { ApiContext } from '../api-context.ts';
import { found, type ReadActions } from '../operation-router.ts';
import { unknownId } from '../request.ts';
import { matchesLabels } from './backend-actions.ts';

export function endpointActions(context: ApiContext): ReadActions<typeof endpoints> {
  return liveActions(
    endpoints,
    () => context.live.endpoints(),
    (endpoint) => showEndpoint(context, endpoint),
  );
}

export function tunnelActions(context: ApiContext): ReadActions<typeof tunnels> {
  return liveActions(
    tunnels,
    () => context.live.tunnels(),
    (tunnel) => showTunnel(context, tunnel),
  );
}

export function tunnelSessionActions(context: ApiContext) {
  const { live } = context;
  const send = (command: SessionCommand) => (id: string) => {
    if (!live.command(id, command)) throw unknownId(tunnelSessions);
  };
  return {
    ...liveActions(
      tunnelSessions,
      () => live.sessions(),
      (session) => showSession(context, session),
    ),
    restart: send('restart'),
    stop: send('stop'),
    update: send('update'),
  };
}

function liveActions<Item extends { id: string }, Shown>(
  resource: ReadableResource,
  online: () => readonly Item[],
  shown: (item: Item) => Shown,
): { get(id: string): Shown; list(before: string | null, limit: number): Shown[] } {
  return {
    get: (id) => shown(found(online().find((item) => item.id === id) ?? null, resource)),
    list: (before, limit) =>
      online()
        .filter((item) => before === null || item.id < before)
        .sort((a, b) => (a.id < b.id ? 1 : -1))
        .slice(0, limit)
        .map(shown),
  };
}

function deviceWith({ store, links }: ApiContext, credentialId: string | null): TunnelSession['device'] {
  const device = credentialId === null ? null : store.devices.byCredential(credentialId);
  return device && { ...links.ref(devices, device.id), name: device.name };
}

function showEndpoint(context: ApiContext, endpoint: LiveEndpoint): Endpoint {
  const { store, links } = context;
  const device = deviceWith(context, endpoint.credentialId);
  const domain = store.reservedDomains.covering(endpoint.host);
  return {
    id: endpoint.id,
    uri: links.of(endpoints, endpoint.id),
    created_at: endpoint.createdAt,
    updated_at: endpoint.updatedAt,
    type: endpoint.type,
    proto: endpoint.proto,
    scheme: endpoint.proto,
    hostport: `${endpoint.host}:${endpoint.port}`,
    host: endpoint.host,
    port: endpoint.port,
    url: endpoint.url,
    public_url: endpoint.url,
    region: '',
    metadata: endpoint.metadata,
    description: endpoint.description,
    name: endpoint.name,
    ...(domain && { domain: links.ref(reservedDomains, domain.id) }),
    ...(endpoint.tunnelId && { tunnel: links.ref(tunnels, endpoint.tunnelId) }),
    ...(endpoint.sessionId && { tunnel_session: links.ref(tunnelSessions, endpoint.sessionId) }),
    ...(endpoint.edgeId && { edge: links.ref(tlsEdges, endpoint.edgeId) }),
    ...(endpoint.ownerId && { principal: links.ref(botUsers, endpoint.ownerId) }),
    ...(device && { device }),
    bindings: [endpoint.internal ? 'internal' : 'public'],
    ...(endpoint.upstreamUrl && { upstream_url: endpoint.upstreamUrl }),
    pooling_enabled: endpoint.poolingEnabled,
  };
}

/** Tunnel groups listed with a tunnel at most; a group always lists all of its tunnels. */
const MAX_GROUPS = 100;

function showTunnel({ store, links }: ApiContext, tunnel: LiveTunnel): Tunnel {
  const common = {
    id: tunnel.id,
    started_at: tunnel.startedAt,
    metadata: tunnel.metadata,
    region: '',
    forwards_to: tunnel.forwardsTo,
    tunnel_session: links.ref(tunnelSessions, tunnel.sessionId),
    ...(tunnel.publicUrl !== null && { public_url: tunnel.publicUrl }),
    ...(tunnel.proto !== null && { proto: tunnel.proto }),
    ...(tunnel.endpointId && { endpoint: links.ref(endpoints, tunnel.endpointId) }),
  };
  if (!tunnel.labels) return common;
  const groups = store.tunnelGroupBackends
    .page(null, MAX_GROUPS)
    .filter((group) => matchesLabels(tunnel, group.labels));
  return {
    ...common,
    labels: { ...tunnel.labels },
    backends: groups.map(({ id }) => links.ref(tunnelGroupBackends, id)),
  };
}

function showSession(context: ApiContext, session: LiveSession): TunnelSession {
  const { links } = context;
  return {
    id: session.id,
    uri: links.of(tunnelSessions, session.id),
    agent_version: session.agentVersion,
    credential: links.refOrNull(credentials, session.credentialId),
    device: deviceWith(context, session.credentialId),
    ip: session.ip,
    os: session.os,
    region: '',
    started_at: session.startedAt,
    transport: session.transport,
    metadata: session.metadata,
  };
}
