import { type ReadonlySignal, signal } from '@preact/signals';
import type { Figures, TrafficEvent, VersionsEvent } from '../../gateway/api/dashboard/live-feed.ts';
import { connectLive, type LiveConnection } from '../ui/live-connection.ts';
import { takeTraffic } from './endpoint-traffic.tsx';
import { session } from './session.ts';

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
  isLive: boolean;
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
  const stampOf = ({ isLive, tables }: Watched) => {
    const { all, tables: counts } = versions.value ?? { all: '', tables: {} };
    return [entries.value, isLive && figures.value?.stamp, all, ...tables.map((table) => counts[table])].join();
  };
  return { connection, figures, stampOf };
}
