import type { JSX } from 'preact';
import type { LiveConnection } from './live-connection.ts';
import { Badge } from './notice.tsx';
import { ago } from './time-span.ts';

/** Says whether what the page shows is current. */
export function LiveBadge({ connection }: { connection: LiveConnection }): JSX.Element {
  const state = connection.state.value;
  return (
    <span role="status">
      {state === 'live' && <Badge tone="good">Live</Badge>}
      {state === 'connecting' && <Badge tone="busy">Connecting…</Badge>}
      {state === 'lost' && <Badge tone="warning">Reconnecting…</Badge>}
    </span>
  );
}

/** Says below the header that the page shows old data. */
export function StaleNotice({ connection }: { connection: LiveConnection }): JSX.Element | null {
  if (connection.state.value !== 'lost') return null;
  return (
    <div class="stale" role="alert">
      No connection. Showing what was known {ago(connection.lastEvent.value)}; reconnecting…
    </div>
  );
}
