import { type ReadonlySignal, signal } from '@preact/signals';
import type { Figures, TrafficEvent } from '../../gateway/api/dashboard/live-feed.ts';
import { connectLive, type LiveConnection } from '../ui/live-connection.ts';
import { takeTraffic } from './endpoint-traffic.tsx';
import { session } from './session.ts';

export interface LiveFigures {
  readonly connection: LiveConnection;
  /** Null before the first event. */
  readonly figures: ReadonlySignal<Figures | null>;
}

/** Opens the live feed. */
export function openFigures(): LiveFigures {
  const figures = signal<Figures | null>(null);
  const connection = connectLive({
    url: '/dashboard/events',
    on: {
      figures: (data) => {
        figures.value = data as Figures;
      },
      traffic: (data) => takeTraffic(data as TrafficEvent),
    },
    shouldRetry: async () => {
      await session.refresh();
      return session.access.value?.access === 'signed-in';
    },
  });
  return { connection, figures };
}
