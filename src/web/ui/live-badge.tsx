import type { JSX } from 'preact';
import { shared } from '../strings.ts';
import type { LiveConnection } from './live-connection.ts';
import { Badge } from './notice.tsx';
import { ago } from './time-span.ts';

/** Says whether what the page shows is current. */
export function LiveBadge({ connection }: { connection: LiveConnection }): JSX.Element {
  const state = connection.state.value;
  return (
    <span role="status">
      {state === 'live' && <Badge tone="good">{shared.live}</Badge>}
      {state === 'connecting' && <Badge tone="busy">{shared.connecting}</Badge>}
      {state === 'lost' && <Badge tone="warning">{shared.reconnectingShort}</Badge>}
    </span>
  );
}

/** Says below the header that the page shows old data. */
export function StaleNotice({ connection }: { connection: LiveConnection }): JSX.Element | null {
  if (connection.state.value !== 'lost') return null;
  return (
    <div class="stale" role="alert">
      {shared.reconnecting(ago(connection.lastEvent.value))}
    </div>
  );
}
