import { computed, type ReadonlySignal, signal } from '@preact/signals';
import type { FeedChange, FeedSnapshot, FeedTunnel, PageAccess } from '../../agent/api/page/page-routes.ts';
import type { TailLine } from '../../lib/log/log-tail.ts';
import { BrowserSession } from '../ui/browser-session.ts';
import { connectLive, type LiveConnection } from '../ui/live-connection.ts';

type Status = FeedSnapshot['status'];

/** How this browser gets at the API. */
export const session = new BrowserSession<{ access: PageAccess }>('/page/session', '/page/sessions');

/** The agent's state, as the page has received it from the live feed. */
export interface DeviceModel {
  /** What the device is called; null before the first event. */
  readonly name: ReadonlySignal<string | null>;
  readonly connection: LiveConnection;
  /** Null before the first event. */
  readonly status: ReadonlySignal<Status | null>;
  /** Oldest first. */
  readonly tunnels: ReadonlySignal<readonly FeedTunnel[]>;
  /** Newest first. */
  readonly log: ReadonlySignal<readonly TailLine[]>;
  /** When the agent started, in milliseconds since the Unix epoch. */
  readonly started: ReadonlySignal<number>;
  /** Takes out a tunnel that was deleted. */
  forget(id: string): void;
}

const MAX_LINES = 100;

/** Opens the live feed. */
export function openModel(): DeviceModel {
  const name = signal<string | null>(null);
  const status = signal<Status | null>(null);
  const started = signal(0);
  const byId = signal<ReadonlyMap<string, FeedTunnel>>(new Map());
  const log = signal<readonly TailLine[]>([]);
  const takeStatus = (next: Status) => {
    status.value = next;
    started.value = Date.now() - next.uptime_seconds * 1000;
  };
  const connection = connectLive({
    path: '/page/events',
    on: {
      snapshot: (data) => {
        const snapshot = data as FeedSnapshot;
        name.value = snapshot.name;
        takeStatus(snapshot.status);
        byId.value = new Map(snapshot.tunnels.map((tunnel) => [tunnel.id, tunnel]));
        log.value = snapshot.log.toReversed();
      },
      change: (data) => {
        const change = data as FeedChange;
        if (change.status) takeStatus(change.status);
        if (change.tunnels || change.removed) {
          const next = new Map(byId.value);
          for (const id of change.removed ?? []) next.delete(id);
          for (const tunnel of change.tunnels ?? []) {
            // Of a tunnel that was deleted here, a part may still come.
            if (!next.has(tunnel.id) && tunnel.url === undefined) continue;
            next.set(tunnel.id, { ...next.get(tunnel.id), ...tunnel } as FeedTunnel);
          }
          byId.value = next;
        }
        if (change.log) log.value = [...change.log.toReversed(), ...log.value].slice(0, MAX_LINES);
      },
    },
    // Signed out meanwhile: the page shows how to sign in, and opens a feed of its own then.
    shouldRetry: () => session.mayCall(),
  });
  const forget = (id: string) => {
    byId.value = new Map([...byId.value].filter(([each]) => each !== id));
  };
  return { name, connection, status, tunnels: computed(() => [...byId.value.values()]), log, started, forget };
}
