import { computed, type ReadonlySignal, signal } from '@preact/signals';
import type { ChangedEvent, Figures, TrafficEvent } from '../../gateway/api/dashboard/dashboard-feed.ts';
import type { DashboardAccess, SignInPlace } from '../../gateway/api/dashboard/dashboard-router.ts';
import { ApiProblem, call } from '../ui/api.ts';
import { BrowserSession } from '../ui/browser-session.ts';
import { connectLive, type LiveConnection } from '../ui/live-connection.ts';
import { takeTraffic } from './endpoint-traffic.tsx';

/** Whether this browser is signed in; signing out everywhere ends all sessions of the same key or person, or of all links. */
export const session = new BrowserSession<DashboardAccess>('/dashboard/session', '/dashboard/sessions');

/** Leads to the page at which people of the gateway sign in, and from there back to the present view. @throws {ApiProblem} */
export async function leaveToSignIn(): Promise<void> {
  const view = window.location.hash.startsWith('#/') ? window.location.hash : '';
  const { url } = await call<SignInPlace>('POST', '/dashboard/sign-in', { view });
  window.location.assign(url);
}

/** Calls the management API; a browser that is no longer signed in sees how to sign in. */
export async function api<T>(method: string, path: string, body?: unknown): Promise<T> {
  try {
    return await call<T>(method, path, body, { 'service-version': '2' });
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 403) await session.refresh();
    throw error;
  }
}

export interface LiveFigures {
  readonly connection: LiveConnection;
  /** Null before the first event. */
  readonly figures: ReadonlySignal<Figures | null>;
  /** News of what a view shows. */
  newsOf(watched: Watched): ReadonlySignal<News>;
}

/** Ids of what has changed; null: anything may have. Each is an object of its own. */
export interface News {
  readonly ids: readonly string[] | null;
}

/** What a view shows. */
export interface Watched {
  /** The ids that it shows of what comes and goes with agents begin with one of these: `ts_` agents, `cr_` their authtokens. */
  online?: readonly string[];
  /** The tables of the gateway's database that it shows. */
  tables: readonly string[];
}

/** Opens the live feed. */
export function openFigures(): LiveFigures {
  const figures = signal<Figures | null>(null);
  const changed = signal<ChangedEvent>({ online: null, rows: null });
  const connection = connectLive({
    path: '/dashboard/events',
    on: {
      figures: (data) => {
        figures.value = data as Figures;
      },
      changed: (data) => {
        changed.value = data as ChangedEvent;
      },
      traffic: (data) => takeTraffic(data as TrafficEvent),
    },
    // The first event makes lists load again that could not be loaded meanwhile.
    shouldRetry: () => session.mayCall(),
  });
  const newsOf = (watched: Watched) => {
    let last: News = { ids: null };
    return computed(() => {
      const ids = changedOf(watched, changed.value);
      if (ids?.length !== 0) last = { ids };
      return last;
    });
  };
  return { connection, figures, newsOf };
}

function changedOf({ online: shown = [], tables }: Watched, { online, rows }: ChangedEvent): News['ids'] {
  if (rows === null || (online === null && shown.length > 0)) return null;
  const moving = (online ?? []).filter((id) => shown.some((prefix) => id.startsWith(prefix)));
  return [...moving, ...tables.flatMap((table) => rows[table] ?? [])];
}
