import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import type { EndpointFigures, TrafficEvent } from '../../gateway/api/dashboard/dashboard-feed.ts';
import { byteSize } from '../ui/byte-size.ts';

type FigureName = 'requests' | 'errors' | 'sent' | 'received';
const PLACES: Record<FigureName, 0 | 1 | 2 | 3> = { requests: 0, errors: 1, received: 2, sent: 3 };
/** What is counted, in the order in which it is shown. */
export const FIGURES: readonly { figure: FigureName; label: string }[] = [
  { figure: 'requests', label: 'Requests' },
  { figure: 'errors', label: 'Errors' },
  { figure: 'sent', label: 'To clients' },
  { figure: 'received', label: 'From clients' },
];

/** The latest figures of endpoints with traffic, by id. */
const figures = signal<ReadonlyMap<string, EndpointFigures>>(new Map());

/** Takes figures that have changed; with all of them, those of endpoints that are gone are forgotten. */
export function takeTraffic({ isAll, endpoints }: TrafficEvent): void {
  figures.value = new Map([...(isAll ? [] : figures.value), ...Object.entries(endpoints)]);
}

/** One figure of an endpoint, kept current. */
export function TrafficFigure({ endpoint, figure }: { endpoint: string; figure: FigureName }): JSX.Element {
  const value = figures.value.get(endpoint)?.[PLACES[figure]] ?? 0;
  const isBytes = figure === 'sent' || figure === 'received';
  return <span class="number">{isBytes ? byteSize(value) : value.toLocaleString('en')}</span>;
}

/** All figures of an endpoint. */
export function TrafficFigures({ endpoint }: { endpoint: string }): JSX.Element {
  return (
    <section class="part" aria-labelledby="traffic">
      <h3 id="traffic">Right now</h3>
      <dl class="card figures">
        {FIGURES.map(({ figure, label }) => (
          <div key={figure}>
            <dt>{label}</dt>
            <dd>
              <TrafficFigure endpoint={endpoint} figure={figure} />
            </dd>
          </div>
        ))}
      </dl>
      <p class="hint">
        Requests, connections of TCP and TLS endpoints included, are counted since the endpoint came online.
      </p>
    </section>
  );
}
