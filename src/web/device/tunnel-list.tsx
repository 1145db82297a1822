import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { FeedTunnel } from '../../agent/api/page/feed.ts';
import { Button, ButtonLink } from '../ui/button.tsx';
import { TextField } from '../ui/field.tsx';
import { PlusIcon } from '../ui/icons.tsx';
import { EmptyState } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { TunnelCard } from './tunnel-card.tsx';

/** More tunnels get a filter. */
const FEW = 8;
/** More tunnels are shown on demand. */
const PAGE = 50;

/** All tunnels; those with problems come first, and of both kinds the newest. */
export function TunnelList({ tunnels }: { tunnels: readonly FeedTunnel[] }): JSX.Element {
  const filter = useSignal('');
  const shown = useSignal(PAGE);
  const wanted = filter.value.trim().toLowerCase();
  const matching = tunnels.filter(({ url, forwards_to }) => `${url} ${forwards_to}`.toLowerCase().includes(wanted));
  const sorted = matching
    .toReversed()
    .toSorted((a, b) => Number(a.status === 'online') - Number(b.status === 'online'));
  return (
    <section aria-labelledby="tunnels">
      <div class="section-head">
        <h2 id="tunnels">Tunnels</h2>
        {tunnels.length > 0 && <StartLink />}
      </div>
      {tunnels.length > FEW && (
        <TextField
          label="Filter tunnels"
          hiddenLabel
          type="search"
          placeholder="Filter tunnels"
          value={filter.value}
          onInput={(value) => {
            filter.value = value;
            shown.value = PAGE;
          }}
        />
      )}
      {tunnels.length === 0 && (
        <EmptyState title="No tunnels yet">
          <p>A tunnel gives a program on this device, or in its network, a public URL.</p>
          <StartLink />
        </EmptyState>
      )}
      {tunnels.length > 0 && matching.length === 0 && <p class="hint">No tunnel matches “{filter.value}”.</p>}
      <ul class="tunnels">
        {sorted.slice(0, shown.value).map((tunnel) => (
          <TunnelCard key={tunnel.id} tunnel={tunnel} />
        ))}
      </ul>
      {sorted.length > shown.value && (
        <Button
          onClick={() => {
            shown.value += PAGE;
          }}
        >
          Show {Math.min(PAGE, sorted.length - shown.value)} more
        </Button>
      )}
    </section>
  );
}

function StartLink(): JSX.Element {
  return (
    <ButtonLink kind="primary" href={linkTo('start')}>
      <PlusIcon />
      Start tunnel
    </ButtonLink>
  );
}
