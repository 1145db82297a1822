import type { Endpoint } from '../../../management/resources/endpoint.ts';
import type { TunnelSession } from '../../../management/resources/tunnel-session.ts';
import { For, Named } from '../cells.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';

const { none } = gateway.list;
const agents = gateway.agents;
const endpoints = gateway.endpoints;

/** Agents that are online. */
export const agentsSection: Section<TunnelSession> = {
  name: 'agents',
  path: '/tunnel_sessions',
  listKey: 'tunnel_sessions',
  isLive: true,
  columns: [
    { head: agents.address, cell: ({ ip, id }) => <Named name={ip} below={id} /> },
    { head: agents.version, cell: ({ agent_version }) => agent_version || agents.unknownVersion },
    { head: agents.os, cell: ({ os }) => os || none },
    { head: agents.since, cell: ({ started_at }) => <For moment={started_at} /> },
    { head: agents.authtoken, cell: ({ credential }) => <code>{credential?.id ?? none}</code> },
  ],
  searchText: ({ ip, id, agent_version, os, credential, metadata }) =>
    [ip, id, agent_version, os, credential?.id, metadata].join(' '),
  empty: {
    title: agents.emptyTitle,
    text: agents.empty,
    command: agents.command(`${window.location.hostname.replace(/^api\./, 'connect.')}:${window.location.port || 443}`),
  },
  actions: () => [],
  create: null,
};

/** Public URLs that are online. */
export const endpointsSection: Section<Endpoint> = {
  name: 'endpoints',
  path: '/endpoints',
  listKey: 'endpoints',
  isLive: true,
  columns: [
    { head: endpoints.url, cell: ({ url, hostport }) => <span class="url">{url ?? hostport}</span> },
    { head: endpoints.protocol, cell: ({ proto }) => proto.toUpperCase() },
    { head: endpoints.since, cell: ({ created_at }) => <For moment={created_at} /> },
    { head: endpoints.owner, cell: ({ principal }) => <code>{principal?.id ?? none}</code> },
    {
      head: endpoints.reach,
      cell: ({ bindings }) => (bindings?.includes('internal') ? endpoints.internal : endpoints.public),
    },
  ],
  searchText: ({ url, hostport, proto, principal, name, description, metadata }) =>
    [url, hostport, proto, principal?.id, name, description, metadata].join(' '),
  empty: { title: endpoints.emptyTitle, text: endpoints.empty, command: endpoints.command },
  actions: () => [],
  create: null,
};
