import type { JSX } from 'preact';
import { Address } from '../ui/address.tsx';
import { For } from './cells.tsx';
import { ItemTable } from './item-table.tsx';
import type { Column } from './section.ts';

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
