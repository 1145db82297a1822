import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Tunnel } from '../../../management/resources/tunnel.ts';
import type { TunnelSession } from '../../../management/resources/tunnel-session.ts';
import { ProblemNotice } from '../../ui/notice.tsx';
import { For, Named } from '../cells.tsx';
import { confirmed } from '../confirm-dialog.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import { ItemLink } from '../item-link.tsx';
import { PagedList } from '../paged-list.ts';
import type { Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';
import { TunnelTable } from '../tunnel-table.tsx';

const text = fleet.agents;
const { none } = gateway.list;
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
  isLive: true,
  tables: ['devices'],
  nameOf,
  columns: [
    { head: text.agent, cell: (agent) => <Named name={nameOf(agent)} below={agent.id} /> },
    { head: text.address, cell: ({ ip }) => ip },
    { head: text.version, cell: ({ agent_version }) => agent_version || text.unknownVersion },
    { head: text.os, cell: ({ os }) => os || none },
    { head: text.since, cell: ({ started_at }) => <For moment={started_at} /> },
    { head: text.authtoken, cell: ({ credential }) => <code>{credential?.id ?? none}</code> },
  ],
  searchText: ({ ip, id, agent_version, os, credential, device, metadata }) =>
    [ip, id, agent_version, os, credential?.id, device?.name, device?.id, metadata].join(' '),
  empty: { title: text.emptyTitle, text: text.empty, command: text.command(AGENTS_ADDRESS) },
  create: null,
  facts: (agent) => [
    ...optional(text.device, agent.device && <ItemLink section="devices" id={agent.device.id} />),
    { label: text.address, value: agent.ip },
    { label: text.version, value: agent.agent_version || text.unknownVersion },
    ...optional(text.os, agent.os),
    { label: text.since, value: <For moment={agent.started_at} /> },
    ...optional(text.authtoken, agent.credential && <ItemLink section="authtokens" id={agent.credential.id} />),
    ...commonFacts({ id: agent.id, created_at: agent.started_at, metadata: agent.metadata }),
  ],
  more: ({ id }) => <AgentTunnels key={id} agent={id} />,
  actions: (agent) => {
    const { label, title, effect, hint, submit } = text.disconnect;
    return [
      confirmed({
        name: 'disconnect',
        label,
        title: title(nameOf(agent)),
        effects: [effect, hint],
        submit,
        isDestructive: true,
        run: () => api('POST', `/tunnel_sessions/${agent.id}/restart`),
      }),
    ];
  },
};

function AgentTunnels({ agent }: { agent: string }): JSX.Element {
  const [list] = useState(() => new PagedList<Tunnel>('/tunnels', 'tunnels'));
  useSignalEffect(() => void list.refresh(MOST_TUNNELS));
  const tunnels = list.items.value.filter(({ tunnel_session }) => tunnel_session.id === agent);
  return (
    <>
      {list.problem.value && <ProblemNotice title={gateway.list.failed} problem={list.problem.value} />}
      <TunnelTable tunnels={tunnels} />
    </>
  );
}
