import type { OPERATIONS } from '../../../management/operations.ts';
import { tunnelGroupBackends } from '../../../management/resources/backend.ts';
import { credentials } from '../../../management/resources/credential.ts';
import { devices } from '../../../management/resources/device.ts';
import { endpoints } from '../../../management/resources/endpoint.ts';
import type { ListFilters, ReadableResource } from '../../../management/resources/resource.ts';
import {
  type Tunnel,
  type TunnelSession,
  type TunnelSessionFilters,
  tunnelSessions,
  tunnels,
} from '../../../management/resources/tunnel.ts';
import { searchForms } from '../../endpoints/domain-names.ts';
import type { LiveSession, LiveTunnel, SessionCommand } from '../../endpoints/live-view.ts';
import { type CredentialDevice, versionOrder } from '../../store/devices.ts';
import { type ListPart, labelParts } from '../../store/sql/list-choice.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { unknownId } from '../request.ts';
import { matchesLabels } from './backend-actions.ts';

export function onlineActions(context: ApiContext) {
  return { tunnels: tunnelActions(context), tunnelSessions: tunnelSessionActions(context) };
}

function tunnelActions(context: ApiContext): ActionsOf<typeof OPERATIONS.tunnels> {
  return liveActions(
    tunnels,
    {
      all: () => context.live.tunnels(),
      get: (id) => context.live.find.tunnel(id),
      below: (id) => context.live.find.tunnelsBelow(id),
    },
    (tunnel) => showTunnel(context, tunnel),
  );
}

function tunnelSessionActions(context: ApiContext) {
  const { live, store } = context;
  const { database } = store;
  const send = (command: SessionCommand) => async (id: string, _body: unknown, caller: ApiCaller) => {
    const { credentialId } = found(live.find.session(id), tunnelSessions);
    const device = deviceWith(context, credentialId)?.name ?? null;
    const after = { id, command, device, credential_id: credentialId };
    await database.write(() => database.noteChange({ table: 'agent_commands', before: null, after }), caller);
    if (!live.command(id, command)) throw unknownId(tunnelSessions);
  };
  return {
    ...liveActions(
      tunnelSessions,
      {
        all: () => live.sessions(),
        get: (id) => live.find.session(id),
        below: (id) => live.find.sessionsBelow(id),
      },
      (session) => showSession(context, session),
      (filters: TunnelSessionFilters) => {
        const ofDevice = deviceChoice(context, filters);
        const { version = '' } = filters;
        return {
          isWanted: ({ id, ip, agentVersion, os, metadata, credentialId }) =>
            agentVersion.startsWith(version) &&
            ofDevice.isWanted(credentialId, [id, ip, agentVersion, os, metadata, credentialId ?? '']),
          sorted: {
            device: ({ credentialId, ip }) => ofDevice.nameOf(credentialId) || ip,
            ip: ({ ip }) => ip,
            agent_version: ({ agentVersion }) => versionOrder(agentVersion),
            started_at: ({ startedAt }) => startedAt,
          },
        };
      },
    ),
    restart: send('restart'),
    stop: send('stop'),
    update: send('update'),
    disconnect: send('disconnect'),
  };
}

/** How lists of what is online are chosen. */
interface LiveChoice<Item> {
  /** Whether all filters hold. */
  isWanted(item: Item): boolean;
  readonly sorted: Readonly<Record<string, (item: Item) => string>>;
}

/** Online objects of one kind: all, one by its id, and those with ids below one, the last id first. */
interface Online<Item> {
  all(): readonly Item[];
  get(id: string): Item | null;
  below(id: string | null): Iterable<Item>;
}

/** @param choose what filters mean; left out: there are none */
export function liveActions<Item extends { id: string }, Shown, Filters extends ListFilters>(
  resource: ReadableResource,
  online: Online<Item>,
  shown: (item: Item) => Shown,
  choose: (filters: Filters) => LiveChoice<Item> = () => ({ isWanted: () => true, sorted: {} }),
): { get(id: string): Shown; list(before: string | null, limit: number, filters: Filters): ListPart<Shown> } {
  return {
    get: (id) => shown(found(online.get(id), resource)),
    list(before, limit, filters) {
      const { isWanted, sorted } = choose(filters);
      const { sort, after } = filters;
      const orderOf = sort && sorted[sort.by];
      if (!orderOf) return { items: firstOf(online.below(before), isWanted, limit).map(shown) };
      const sign = sort?.isDescending ? -1 : 1;
      const compared = (a: Placed<Item>, b: Placed<Item>) =>
        sign * compare(a.value, b.value) || compare(b.item.id, a.item.id);
      const isNext = ({ item: { id }, value }: Placed<Item>) => {
        const place = after !== undefined ? sign * compare(value, after) : 0;
        return place > 0 || (place === 0 && (before === null || id < before));
      };
      const page = online
        .all()
        .filter(isWanted)
        .map((item) => ({ item, value: orderOf(item) }))
        .filter(isNext)
        .sort(compared)
        .slice(0, limit);
      return { items: page.map(({ item }) => shown(item)), values: page.map(({ value }) => value) };
    },
  };
}

function firstOf<Item>(items: Iterable<Item>, isWanted: (item: Item) => boolean, limit: number): Item[] {
  const first: Item[] = [];
  for (const item of items) {
    if (first.length >= limit) break;
    if (isWanted(item)) first.push(item);
  }
  return first;
}

interface Placed<Item> {
  readonly item: Item;
  readonly value: string;
}

function compare(a: string, b: string): -1 | 0 | 1 {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** What filters for devices mean for something that may belong to one, by its authtoken. The devices are read when one is asked for. */
export function deviceChoice(
  { store }: Pick<ApiContext, 'store'>,
  { search = '', site, label }: { search?: string | undefined; site?: string | undefined; label?: string | undefined },
) {
  let known: ReadonlyMap<string, CredentialDevice> | null = null;
  const deviceOf = (credentialId: string | null) => {
    known ??= store.devices.ofCredentials();
    return credentialId === null ? undefined : known.get(credentialId);
  };
  const forms = searchForms(search);
  const isFound = (text: string) => forms.some((form) => text.toLowerCase().includes(form));
  const wantedLabel = label === undefined ? null : labelParts(label);
  const hasLabel = (labels: string) => {
    if (wantedLabel === null) return true;
    const value = new Map(Object.entries(JSON.parse(labels) as Record<string, string>)).get(wantedLabel.name);
    return value !== undefined && (wantedLabel.value === undefined || value === wantedLabel.value);
  };
  return {
    nameOf: (credentialId: string | null) => deviceOf(credentialId)?.name ?? '',
    /** @param texts further ones that a search looks at */
    isWanted(credentialId: string | null, texts: readonly string[]): boolean {
      if (site !== undefined || wantedLabel !== null) {
        const device = deviceOf(credentialId);
        if (device === undefined || (site !== undefined && device.site !== site) || !hasLabel(device.labels))
          return false;
      }
      if (search === '' || texts.some(isFound)) return true;
      const device = deviceOf(credentialId);
      return device !== undefined && [device.name, device.id, device.site].some(isFound);
    },
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
