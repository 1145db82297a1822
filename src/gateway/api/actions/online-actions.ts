import { tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { credentials } from '../../../management/resources/credential.ts';
import { devices } from '../../../management/resources/device.ts';
import { endpoints } from '../../../management/resources/endpoint.ts';
import type { ReadableResource } from '../../../management/resources/resource.ts';
import { type Tunnel, type TunnelSession, tunnelSessions, tunnels } from '../../../management/resources/tunnel.ts';
import type { LiveSession, LiveTunnel, SessionCommand } from '../../endpoints/live-view.ts';
import type { ApiContext } from '../api-context.ts';
import { type ApiCaller, found, type ReadActions } from '../operation-router.ts';
import { unknownId } from '../request.ts';
import { matchesLabels } from './backend-actions.ts';

export function onlineActions(context: ApiContext) {
  return { tunnels: tunnelActions(context), tunnelSessions: tunnelSessionActions(context) };
}

function tunnelActions(context: ApiContext): ReadActions<typeof tunnels> {
  return liveActions(
    tunnels,
    () => context.live.tunnels(),
    (tunnel) => showTunnel(context, tunnel),
  );
}

function tunnelSessionActions(context: ApiContext) {
  const { live, store } = context;
  const { database } = store;
  const send = (command: SessionCommand) => async (id: string, _body: unknown, caller: ApiCaller) => {
    const { credentialId } = found(live.sessions().find((each) => each.id === id) ?? null, tunnelSessions);
    const device = deviceWith(context, credentialId)?.name ?? null;
    const after = { id, command, device, credential_id: credentialId };
    await database.write(() => database.noteChange({ table: 'agent_commands', before: null, after }), caller);
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

/** @param isWanted whether an item is in a list that is limited by filters; left out: there are none */
export function liveActions<Item extends { id: string }, Shown, Filters extends object>(
  resource: ReadableResource,
  online: () => readonly Item[],
  shown: (item: Item) => Shown,
  isWanted: (item: Item, filters: Filters) => boolean = () => true,
): { get(id: string): Shown; list(before: string | null, limit: number, filters?: Filters): Shown[] } {
  return {
    get: (id) => shown(found(online().find((item) => item.id === id) ?? null, resource)),
    list: (before, limit, filters) =>
      online()
        .filter((item) => (before === null || item.id < before) && (filters === undefined || isWanted(item, filters)))
        .sort((a, b) => (a.id < b.id ? 1 : -1))
        .slice(0, limit)
        .map(shown),
  };
}

export function deviceWith({ store, links }: ApiContext, credentialId: string | null): TunnelSession['device'] {
  const device = credentialId === null ? null : store.devices.byCredential(credentialId);
  return device && { ...links.ref(devices, device.id), name: device.name };
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
