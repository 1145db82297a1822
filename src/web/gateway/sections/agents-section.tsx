import type { JSX } from 'preact';
import type { Tunnel, TunnelSession } from '../../../management/resources/tunnel.ts';
import { AddressView } from '../../ui/address.tsx';
import { confirmed } from '../action-dialogs.tsx';
import { commonFacts, For, Named, optional } from '../cells.tsx';
import { LABEL_FILTER, SITE_FILTER, VERSION_FILTER } from '../filters.ts';
import { ItemLink } from '../item-link.tsx';
import { ItemTable, OwnedItems } from '../item-table.tsx';
import { listOf } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { ListColumn, Section } from '../section.ts';
import { api } from '../session.ts';

/** How agents reach this gateway; guessed from the page's own address. */
export const AGENTS_ADDRESS = `${window.location.hostname.replace(/^api\./, 'connect.')}:${window.location.port || 443}`;

/** The name of the device, where one has joined with the agent. */
const nameOf = ({ device, ip }: TunnelSession): string => device?.name ?? ip;

/** Agents that are online. */
export const agentsSection: Section<TunnelSession> = {
  ...listOf(RESOURCES.tunnelSessions),
  name: 'agents',
  title: 'Agents',
  // What comes and goes with its authtoken may be its tunnels.
  online: ['ts_', 'cr_'],
  changesWith: ({ device, credential }) => [device?.id, credential?.id],
  tables: ['devices'],
  nameOf,
  columns: [
    { head: 'Agent', sort: 'device', cell: (agent) => <Named name={nameOf(agent)} below={agent.id} /> },
    { head: 'Address', sort: 'ip', cell: ({ ip }) => ip },
    { head: 'Version', sort: 'agent_version', cell: ({ agent_version }) => agent_version || 'unknown' },
    { head: 'System', cell: ({ os }) => os || '–' },
    { head: 'Online for', sort: 'started_at', cell: ({ started_at }) => <For moment={started_at} /> },
    { head: 'Authtoken', cell: ({ credential }) => <code>{credential?.id ?? '–'}</code> },
  ],
  filters: [SITE_FILTER, LABEL_FILTER, VERSION_FILTER],
  empty: {
    title: 'No agents online',
    text: 'An agent connects with an authtoken. Add a site, or run an agent with an authtoken:',
    command: `NGROK_AUTHTOKEN=<authtoken> NGROK_SERVER_ADDR=${AGENTS_ADDRESS} device-agent`,
  },
  facts: (agent) => [
    ...optional('Device', agent.device && <ItemLink id={agent.device.id} />),
    { label: 'Address', value: agent.ip },
    { label: 'Version', value: agent.agent_version || 'unknown' },
    ...optional('System', agent.os),
    { label: 'Online for', value: <For moment={agent.started_at} /> },
    ...optional('Authtoken', agent.credential && <ItemLink id={agent.credential.id} />),
    ...commonFacts({ id: agent.id, created_at: agent.started_at, metadata: agent.metadata }),
  ],
  more: (agent) => (
    <OwnedItems<Tunnel>
      key={agent.id}
      title="Tunnels"
      path="/tunnels"
      listKey="tunnels"
      columns={COLUMNS}
      owner={agent}
      isOwned={({ tunnel_session }) => tunnel_session.id === agent.id}
      none={NO_TUNNELS}
    />
  ),
  actions: (agent) => {
    return [
      confirmed({
        name: 'disconnect',
        label: 'Disconnect',
        title: `Disconnect ${nameOf(agent)}?`,
        effects: [
          'All of its endpoints go offline. They come back within seconds: a device-agent restarts, with its present settings, and other agents reconnect.',
          'To keep it out, revoke its authtoken instead.',
        ],
        submit: 'Disconnect agent',
        isDestructive: true,
        run: () => api('POST', `/tunnel_sessions/${agent.id}/restart`),
      }),
    ];
  },
};

const NO_TUNNELS = <p class="hint">No tunnels online.</p>;

interface ShownTunnel {
  id: string;
  /** Missing for labelled tunnels. */
  public_url?: string | null | undefined;
  forwards_to?: string | undefined;
  started_at: string;
}

const COLUMNS: readonly ListColumn<ShownTunnel>[] = [
  { head: 'URL', cell: ({ public_url }) => (public_url ? <AddressView url={public_url} /> : '–') },
  { head: 'Forwards to', cell: ({ forwards_to }) => <code>{forwards_to ?? '–'}</code> },
  { head: 'Online for', cell: ({ started_at }) => <For moment={started_at} /> },
];

/** The tunnels of a device. */
export function TunnelTable({ tunnels }: { tunnels: readonly ShownTunnel[] }): JSX.Element {
  return (
    <section class="part" aria-labelledby="tunnels">
      <h3 id="tunnels">Tunnels</h3>
      {tunnels.length === 0 ? NO_TUNNELS : <ItemTable title="Tunnels" columns={COLUMNS} items={tunnels} />}
    </section>
  );
}
