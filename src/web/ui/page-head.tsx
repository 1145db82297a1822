import type { ComponentChildren, JSX } from 'preact';
import type { LiveConnection } from './live-connection.ts';
import { Badge } from './notice.tsx';
import { ago } from './time-span.ts';

export interface PageHeadProps {
  title: string;
  connection: LiveConnection;
  /** What stands at its end. */
  children: ComponentChildren;
}

/** The head of a page, and for keyboards a way past it to the element `content`. */
export function PageHead({ title, connection, children }: PageHeadProps): JSX.Element {
  return (
    <>
      <button type="button" class="button skip" onClick={() => document.getElementById('content')?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <h1>{title}</h1>
        <LiveBadge connection={connection} />
        {children}
      </header>
    </>
  );
}

/** Says whether what the page shows is current. */
function LiveBadge({ connection }: { connection: LiveConnection }): JSX.Element {
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
