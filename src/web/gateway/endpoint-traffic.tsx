import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import type { EndpointFigures, TrafficEvent } from '../../gateway/api/dashboard/live-feed.ts';
import { fleet } from './fleet-strings.ts';
import { gateway } from './strings.ts';

const text = fleet.endpoints;
type FigureName = 'requests' | 'errors' | 'sent' | 'received';
const PLACES: Record<FigureName, 0 | 1 | 2 | 3> = { requests: 0, errors: 1, received: 2, sent: 3 };

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
  return <span class="number">{isBytes ? bytes(value) : value.toLocaleString('en')}</span>;
}

/** All figures of an endpoint. */
export function TrafficFigures({ endpoint }: { endpoint: string }): JSX.Element {
  return (
    <section class="part" aria-labelledby="traffic">
      <h3 id="traffic">{gateway.overview.figures}</h3>
      <dl class="card figures">
        {(['requests', 'errors', 'sent', 'received'] as const).map((figure) => (
          <div key={figure}>
            <dt>{text[figure]}</dt>
            <dd>
              <TrafficFigure endpoint={endpoint} figure={figure} />
            </dd>
          </div>
        ))}
      </dl>
      <p class="hint">{text.counted}</p>
    </section>
  );
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** A number of bytes with at most three significant digits. */
export function bytes(count: number): string {
  const power = count < 1000 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(count) / 3));
  const value = count / 1000 ** power;
  return `${value.toLocaleString('en', { maximumSignificantDigits: 3 })} ${UNITS[power]}`;
}
