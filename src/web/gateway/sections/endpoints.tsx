import type { Endpoint } from '../../../management/resources/endpoint.ts';
import { Address, UnicodeForm } from '../../ui/address.tsx';
import { unicodeForm } from '../../ui/unicode-form.ts';
import { For } from '../cells.tsx';
import { TrafficFigure, TrafficFigures } from '../endpoint-traffic.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import { ItemLink } from '../item-link.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';

const text = fleet.endpoints;
const { none } = gateway.list;

const urlOf = ({ url, hostport }: Endpoint): string => url ?? hostport ?? none;
const reachOf = ({ bindings }: Endpoint): string => (bindings?.includes('internal') ? text.internal : text.public);

/** The traffic of TLS edges counts for the tunnels behind them. */
const isCounted = ({ type }: Endpoint): boolean => type !== 'edge';

/** Public URLs that are online. */
export const endpointsSection: Section<Endpoint> = {
  name: 'endpoints',
  path: '/endpoints',
  listKey: 'endpoints',
  isLive: true,
  tables: [],
  nameOf: urlOf,
  columns: [
    {
      head: text.url,
      cell: (endpoint) => (
        <>
          <span class="url">{urlOf(endpoint)}</span>
          <UnicodeForm of={urlOf(endpoint)} />
        </>
      ),
    },
    { head: text.device, cell: ({ device }) => device?.name ?? none },
    { head: text.since, cell: ({ created_at }) => <For moment={created_at} /> },
    ...(['requests', 'errors', 'sent', 'received'] as const).map((figure) => ({
      head: text[figure],
      cell: (endpoint: Endpoint) =>
        isCounted(endpoint) ? <TrafficFigure endpoint={endpoint.id} figure={figure} /> : none,
    })),
  ],
  searchText: ({ id, url, hostport, proto, principal, device, name, description, metadata }) =>
    [
      ...[id, url, hostport, unicodeForm(url ?? ''), proto, principal?.id],
      ...[device?.name, device?.id, name, description, metadata],
    ].join(' '),
  empty: { title: text.emptyTitle, text: text.empty, command: text.command },
  create: null,
  facts: (endpoint) => [
    { label: text.url, value: <Address url={urlOf(endpoint)} /> },
    ...optional(text.device, endpoint.device && <ItemLink section="devices" id={endpoint.device.id} />),
    { label: text.protocol, value: endpoint.proto.toUpperCase() },
    { label: text.reach, value: reachOf(endpoint) },
    ...optional(text.forwardsTo, endpoint.upstream_url && <code>{endpoint.upstream_url}</code>),
    ...optional(text.agent, endpoint.tunnel_session && <ItemLink section="agents" id={endpoint.tunnel_session.id} />),
    ...optional(text.edge, endpoint.edge && <ItemLink section="edges" id={endpoint.edge.id} />),
    ...optional(text.owner, endpoint.principal && <ItemLink section="bot-users" id={endpoint.principal.id} />),
    ...optional(gateway.sections.domains, endpoint.domain && <ItemLink section="domains" id={endpoint.domain.id} />),
    ...optional(text.name, endpoint.name),
    { label: text.pooled, value: endpoint.pooling_enabled ? text.yes : text.no },
    ...commonFacts(endpoint),
  ],
  more: (endpoint) => (isCounted(endpoint) ? <TrafficFigures endpoint={endpoint.id} /> : null),
  actions: () => [],
};
