import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { EndpointTraffic } from '../../endpoints/endpoint.ts';
import type { LiveEndpoint, LiveView } from '../../endpoints/live-view.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import type { TableVersions } from '../../store/sql/table-versions.ts';
import { refuse } from '../request.ts';

/** Each event of the feed, `figures`. */
export interface Figures {
  readonly version: string;
  readonly agents: number;
  readonly endpoints: number;
  readonly connections: number;
  /** Responses to clients since the gateway started, and those with status 5xx among them. */
  readonly responses: number;
  readonly errors: number;
  readonly upstreamFailures: number;
  readonly refusedByPolicy: number;
  /** Changes when an agent or an endpoint comes or goes: lists are out of date then. */
  readonly stamp: string;
}

/** Of one endpoint: requests, errors, bytes from clients, bytes to clients. */
export type EndpointFigures = readonly [requests: number, errors: number, received: number, sent: number];

/** Each event `traffic`: the endpoints whose figures have changed. */
export interface TrafficEvent {
  /** Whether these are all endpoints with traffic, as in the first event. */
  readonly isAll: boolean;
  /** By the id of the endpoint. */
  readonly endpoints: Readonly<Record<string, EndpointFigures>>;
}

/** Each event `versions`: lists are out of date when the versions of their tables change. */
export type VersionsEvent = TableVersions;

/** Pages show a change within two seconds: half of it is left for loading what changed. */
const INTERVAL_MS = 1_000;

interface Source {
  live: LiveView;
  counters: TrafficCounters;
  version: string;
  versions: () => VersionsEvent;
  clock: Clock;
}

/** Sends open dashboards what is online, as server-sent events. Without an open one, nothing runs. */
export class DashboardFeed {
  readonly #pages: EventStreams;
  #sent = { figures: '', versions: '' };
  /** What was last sent of each endpoint with traffic, as one number that grows with all of its figures. */
  #traffic = new Map<string, number>();
  #lastEvent = 0;

  constructor(private readonly source: Source) {
    this.#pages = new EventStreams(source.clock, INTERVAL_MS, () => this.#send(), true);
  }

  /** @param isSignedIn asked again before every event */
  open(res: Response, isSignedIn: () => boolean): void {
    if (this.#pages.isFull) {
      throw refuse(429, 226, `too many open dashboards: at most ${MAX_STREAMS}; close one`, { retryAfter: 10 });
    }
    // The figures of all endpoints come before changes to them.
    const endpoints = this.source.live.endpoints();
    const first = eventText('figures', this.#figures(endpoints)) + trafficText(true, endpoints) + this.#versions();
    this.#pages.add(res, null, first, isSignedIn);
  }

  #send(): void {
    const endpoints = this.source.live.endpoints();
    const before = this.#sent;
    const figures = eventText('figures', this.#figures(endpoints));
    const versions = this.#versions();
    const traffic = this.#changedTraffic(endpoints);
    const now = this.source.clock.now();
    const news = (figures === before.figures ? '' : figures) + traffic + (versions === before.versions ? '' : versions);
    for (const [page] of this.#pages) {
      if (news !== '') page.send(news);
      else if (now - this.#lastEvent >= SILENCE_MS) page.send(eventText('alive', {}));
    }
    if (news === '' && now - this.#lastEvent < SILENCE_MS) return;
    this.#sent = { figures, versions };
    this.#lastEvent = now;
  }

  #versions(): string {
    return eventText('versions', this.source.versions());
  }

  #changedTraffic(endpoints: readonly LiveEndpoint[]): string {
    const before = this.#traffic;
    this.#traffic = new Map(endpoints.map(({ id, traffic }) => [id, total(traffic)]));
    const changed = endpoints.filter(({ id }) => this.#traffic.get(id) !== (before.get(id) ?? 0));
    return changed.length === 0 ? '' : trafficText(false, changed);
  }

  #figures(endpoints: readonly LiveEndpoint[]): Figures {
    const { live, counters, version } = this.source;
    const agents = live.sessions();
    const stamp = createHash('sha256');
    for (const { id } of agents) stamp.update(id);
    for (const { id } of endpoints) stamp.update(id);
    return {
      version,
      agents: agents.length,
      endpoints: endpoints.length,
      connections: sum(Object.values(counters.connections)),
      responses: sum(counters.responses),
      errors: counters.responses[5] ?? 0,
      upstreamFailures: counters.upstreamFailures,
      refusedByPolicy: counters.refusedByPolicy,
      stamp: stamp.digest('base64url').slice(0, 12),
    };
  }
}

function total(traffic: Readonly<EndpointTraffic> | null): number {
  return traffic === null ? 0 : traffic.requests + traffic.errors + traffic.received + traffic.sent;
}

function trafficText(isAll: boolean, endpoints: readonly LiveEndpoint[]): string {
  const figures = endpoints.flatMap(({ id, traffic }): [string, EndpointFigures][] =>
    traffic === null || total(traffic) === 0
      ? []
      : [[id, [traffic.requests, traffic.errors, traffic.received, traffic.sent]]],
  );
  const event: TrafficEvent = { isAll, endpoints: Object.fromEntries(figures) };
  return eventText('traffic', event);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
