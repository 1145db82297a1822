import type { Endpoint } from '../../../management/resources/endpoint.ts';
import { accessText, takesLinks } from '../../ui/access.ts';
import { Address, UnicodeForm } from '../../ui/address.tsx';
import { unicodeForm } from '../../ui/unicode-form.ts';
import { accessAction } from '../access-dialog.tsx';
import { edited } from '../action-dialogs.tsx';
import { commonFacts, For, optional } from '../cells.tsx';
import { FIGURES, TrafficFigure, TrafficFigures } from '../endpoint-traffic.tsx';
import { ItemLink } from '../item-link.tsx';
import { SECTION_TITLES, type Section } from '../section.ts';
import { shareForm } from './share-links.tsx';

const urlOf = ({ url, hostport }: Endpoint): string => url ?? hostport ?? '–';
const reachOf = ({ bindings }: Endpoint): string => (bindings?.includes('internal') ? 'Internal' : 'Public');

/** The traffic of TLS edges counts for the tunnels behind them. */
const isCounted = ({ type }: Endpoint): boolean => type !== 'edge';

/** Those of agents are changed where their policies are. */
const whoMayComeIn = ({ access = [], type }: Endpoint): string =>
  accessText(access) + (type === 'ephemeral' ? ' – its device decides' : '');

/** Public URLs that are online. */
export const endpointsSection: Section<Endpoint> = {
  name: 'endpoints',
  path: '/endpoints',
  listKey: 'endpoints',
  online: ['ep_'],
  tables: [],
  nameOf: urlOf,
  columns: [
    {
      head: 'URL',
      cell: (endpoint) => (
        <>
          <span class="url">{urlOf(endpoint)}</span>
          <UnicodeForm of={urlOf(endpoint)} />
        </>
      ),
    },
    { head: 'Device', cell: ({ device }) => device?.name ?? '–' },
    { head: 'Who may come in', cell: ({ access }) => (access ? accessText(access) : '–') },
    { head: 'Online for', cell: ({ created_at }) => <For moment={created_at} /> },
    ...FIGURES.map(({ figure, label }) => ({
      head: label,
      cell: (endpoint: Endpoint) =>
        isCounted(endpoint) ? <TrafficFigure endpoint={endpoint.id} figure={figure} /> : '–',
    })),
  ],
  searchTexts: ({ id, url, hostport, proto, principal, device, name, description, metadata }) => [
    ...[id, url, hostport, unicodeForm(url ?? ''), proto, principal?.id],
    ...[device?.name, device?.id, name, description, metadata],
  ],
  empty: {
    title: 'No endpoints online',
    text: 'An endpoint comes online when an agent starts a tunnel. On a device, run:',
    command: 'device-agent tunnels start 8080',
  },
  facts: (endpoint) => [
    { label: 'URL', value: <Address url={urlOf(endpoint)} /> },
    ...optional('Device', endpoint.device && <ItemLink section="devices" id={endpoint.device.id} />),
    { label: 'Protocol', value: endpoint.proto.toUpperCase() },
    { label: 'Reach', value: reachOf(endpoint) },
    ...optional('Who may come in', endpoint.access && whoMayComeIn(endpoint)),
    ...optional('Forwards to', endpoint.upstream_url && <code>{endpoint.upstream_url}</code>),
    ...optional('Agent', endpoint.tunnel_session && <ItemLink section="agents" id={endpoint.tunnel_session.id} />),
    ...optional('TLS edge', endpoint.edge && <ItemLink section="edges" id={endpoint.edge.id} />),
    ...optional('Bot user', endpoint.principal && <ItemLink section="bot-users" id={endpoint.principal.id} />),
    ...optional(SECTION_TITLES.domains, endpoint.domain && <ItemLink section="domains" id={endpoint.domain.id} />),
    ...optional('Traffic policy', endpoint.traffic_policy && <code>{endpoint.traffic_policy}</code>),
    ...optional('Name', endpoint.name),
    { label: 'Shares its address', value: endpoint.pooling_enabled ? 'Yes' : 'No' },
    ...commonFacts(endpoint),
  ],
  more: (endpoint) => (isCounted(endpoint) ? <TrafficFigures endpoint={endpoint.id} /> : null),
  actions: (endpoint) => {
    const { access = [], url, type, proto } = endpoint;
    const isCloud = type === 'cloud' && (proto === 'https' || proto === 'http');
    return [
      ...(takesLinks(access) && url
        ? [edited({ name: 'share', label: 'Share', method: 'POST', path: '/share_links', form: shareForm(url) })]
        : []),
      ...(isCloud ? [accessAction(endpoint)] : []),
    ];
  },
};
