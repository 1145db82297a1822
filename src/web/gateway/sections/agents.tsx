import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Tunnel, TunnelSession } from '../../../management/resources/tunnel.ts';
import { Address } from '../../ui/address.tsx';
import { ProblemNotice } from '../../ui/notice.tsx';
import { confirmed } from '../action-dialogs.tsx';
import { commonFacts, For, Named, optional } from '../cells.tsx';
import { ItemLink } from '../item-link.tsx';
import { ItemTable } from '../item-table.tsx';
import { PagedList } from '../paged-list.ts';
import type { Column, Section } from '../section.ts';
import { api } from '../session.ts';

/** The API lists the tunnels of all agents together. */
const MOST_TUNNELS = 10_000;

/** How agents reach this gateway; guessed from the page's own address. */
export const AGENTS_ADDRESS = `${window.location.hostname.replace(/^api\./, 'connect.')}:${window.location.port || 443}`;

/** The name of the device, where one has joined with the agent. */
const nameOf = ({ device, ip }: TunnelSession): string => device?.name ?? ip;

/** Agents that are online. */
export const agentsSection: Section<TunnelSession> = {
  name: 'agents',
  path: '/tunnel_sessions',
  listKey: 'tunnel_sessions',
  online: ['ts_'],
  changesWith: ({ device }) => [device?.id],
  tables: ['devices'],
  nameOf,
  columns: [
    { head: 'Agent', cell: (agent) => <Named name={nameOf(agent)} below={agent.id} /> },
    { head: 'Address', cell: ({ ip }) => ip },
    { head: 'Version', cell: ({ agent_version }) => agent_version || 'unknown' },
    { head: 'System', cell: ({ os }) => os || '–' },
    { head: 'Online for', cell: ({ started_at }) => <For moment={started_at} /> },
    { head: 'Authtoken', cell: ({ credential }) => <code>{credential?.id ?? '–'}</code> },
  ],
  searchTexts: ({ ip, id, agent_version, os, credential, device, metadata }) => [
    ip,
    id,
    agent_version,
    os,
    credential?.id,
    device?.name,
    device?.id,
    metadata,
  ],
  empty: {
    title: 'No agents online',
    text: 'An agent connects with an authtoken. Add a site, or run an agent with an authtoken:',
    command: `NGROK_AUTHTOKEN=<authtoken> NGROK_SERVER_ADDR=${AGENTS_ADDRESS} device-agent`,
  },
  facts: (agent) => [
    ...optional('Device', agent.device && <ItemLink section="devices" id={agent.device.id} />),
    { label: 'Address', value: agent.ip },
    { label: 'Version', value: agent.agent_version || 'unknown' },
    ...optional('System', agent.os),
    { label: 'Online for', value: <For moment={agent.started_at} /> },
    ...optional('Authtoken', agent.credential && <ItemLink section="authtokens" id={agent.credential.id} />),
    ...commonFacts({ id: agent.id, created_at: agent.started_at, metadata: agent.metadata }),
  ],
  more: ({ id }) => <AgentTunnels key={id} agent={id} />,
  actions: (agent) => {
    return [
      confirmed({
        name: 'disconnect',
        label: 'Disconnect',
        title: `Disconnect ${nameOf(agent)}?`,
        effects: [
          'All of its endpoints go offline. They come back when the agent reconnects, usually within seconds.',
          'To keep it out, revoke its authtoken instead.',
        ],
        submit: 'Disconnect agent',
        isDestructive: true,
        run: () => api('POST', `/tunnel_sessions/${agent.id}/restart`),
      }),
    ];
  },
};

function AgentTunnels({ agent }: { agent: string }): JSX.Element {
  const [list] = useState(() => new PagedList<Tunnel>({ path: '/tunnels', listKey: 'tunnels' }));
  useSignalEffect(() => void list.refresh(MOST_TUNNELS));
  const tunnels = list.items.value.filter(({ tunnel_session }) => tunnel_session.id === agent);
  return (
    <>
      {list.problem.value && <ProblemNotice title="The list could not be loaded" problem={list.problem.value} />}
      <TunnelTable tunnels={tunnels} />
    </>
  );
}

interface ShownTunnel {
  id: string;
  /** Missing for labelled tunnels. */
  public_url?: string | null | undefined;
  forwards_to?: string | undefined;
  started_at: string;
}

const COLUMNS: readonly Column<ShownTunnel>[] = [
  { head: 'URL', cell: ({ public_url }) => (public_url ? <Address url={public_url} /> : '–') },
  { head: 'Forwards to', cell: ({ forwards_to }) => <code>{forwards_to ?? '–'}</code> },
  { head: 'Online for', cell: ({ started_at }) => <For moment={started_at} /> },
];

/** The tunnels of an agent or a device. */
export function TunnelTable({ tunnels }: { tunnels: readonly ShownTunnel[] }): JSX.Element {
  return (
    <section class="part" aria-labelledby="tunnels">
      <h3 id="tunnels">Tunnels</h3>
      {tunnels.length === 0 ? (
        <p class="hint">No tunnels online.</p>
      ) : (
        <ItemTable title="Tunnels" columns={COLUMNS} items={tunnels} />
      )}
    </section>
  );
}
