import type { JSX } from 'preact';
import { Address } from '../ui/address.tsx';
import { For } from './cells.tsx';
import { fleet } from './fleet-strings.ts';
import { ItemTable } from './item-table.tsx';
import type { Column } from './section.ts';
import { gateway } from './strings.ts';

const text = fleet.agents;

interface ShownTunnel {
  id: string;
  /** Missing for labelled tunnels. */
  public_url?: string | null | undefined;
  forwards_to?: string | undefined;
  started_at: string;
}

const COLUMNS: readonly Column<ShownTunnel>[] = [
  { head: text.url, cell: ({ public_url }) => (public_url ? <Address url={public_url} /> : gateway.list.none) },
  { head: text.forwardsTo, cell: ({ forwards_to }) => <code>{forwards_to ?? gateway.list.none}</code> },
  { head: text.since, cell: ({ started_at }) => <For moment={started_at} /> },
];

/** The tunnels of an agent or a device. */
export function TunnelTable({ tunnels }: { tunnels: readonly ShownTunnel[] }): JSX.Element {
  return (
    <section class="part" aria-labelledby="tunnels">
      <h3 id="tunnels">{text.tunnels}</h3>
      {tunnels.length === 0 ? (
        <p class="hint">{text.noTunnels}</p>
      ) : (
        <ItemTable title={text.tunnels} columns={COLUMNS} items={tunnels} />
      )}
    </section>
  );
}
