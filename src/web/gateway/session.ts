import { type ReadonlySignal, signal } from '@preact/signals';
import type { DashboardAccess } from '../../gateway/api/dashboard/dashboard-router.ts';
import type { Figures, TrafficEvent, VersionsEvent } from '../../gateway/api/dashboard/live-feed.ts';
import { ApiProblem, call } from '../ui/api.ts';
import { BrowserSession } from '../ui/browser-session.ts';
import { connectLive, type LiveConnection } from '../ui/live-connection.ts';
import { takeTraffic } from './endpoint-traffic.tsx';

/** Whether this browser is signed in; signing out everywhere ends all sessions of the same key, or of all links. */
export const session = new BrowserSession<DashboardAccess>('/dashboard/session', '/dashboard/sessions');

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
  /** A text that changes when rows of these tables, or what is online, may have changed. */
  stampOf(wanted: Watched): string;
}

/** What a view shows. */
export interface Watched {
  /** Whether it shows what changes as agents come and go. */
  isLive?: boolean;
  /** The tables of the gateway's database that it shows. */
  tables: readonly string[];
}

/** Opens the live feed. */
export function openFigures(): LiveFigures {
  const figures = signal<Figures | null>(null);
  const versions = signal<VersionsEvent | null>(null);
  /** Lists that could not be loaded while the session was over are loaded again. */
  const entries = signal(0);
  const connection = connectLive({
    url: '/dashboard/events',
    on: {
      figures: (data) => {
        figures.value = data as Figures;
      },
      versions: (data) => {
        versions.value = data as VersionsEvent;
      },
      traffic: (data) => takeTraffic(data as TrafficEvent),
    },
    shouldRetry: async () => {
      await session.refresh();
      if (session.isEnded.value) {
        await session.readmission();
        entries.value++;
      }
      return session.access.value?.access === 'signed-in';
    },
  });
  const stampOf = ({ isLive = false, tables }: Watched) => {
    const { all, tables: counts } = versions.value ?? { all: '', tables: {} };
    return [entries.value, isLive && figures.value?.stamp, all, ...tables.map((table) => counts[table])].join();
  };
  return { connection, figures, stampOf };
}
