import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { EndpointTraffic } from '../../endpoints/endpoint.ts';
import type { LiveEndpoint, LiveView } from '../../endpoints/live-view.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import type { RowChanges } from '../../store/sql/changed-rows.ts';
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

/** Each event `changed`: what shows one of these is out of date. The first event has null for both. */
export interface ChangedEvent {
  /** Ids of agents, endpoints and labelled tunnels that came or went, and of their authtokens; null: of any. */
  readonly online: readonly string[] | null;
  readonly rows: RowChanges;
}

/** Beyond so many, pages load everything again anyway. */
const MOST_CHANGES = 100;

/** Pages show a change within two seconds: half of it is left for loading what changed. */
const INTERVAL_MS = 1_000;

interface Source {
  live: LiveView;
  counters: TrafficCounters;
  version: string;
  /** Those since the last call. */
  changedRows: () => RowChanges;
  clock: Clock;
}

/** Sends open dashboards what is online, as server-sent events. Without an open one, nothing runs. */
export class DashboardFeed {
  readonly #pages: EventStreams;
  #sentFigures = '';
  /** What was online at the last event, each with its authtoken. */
  #online: ReadonlyMap<string, string | null> = new Map();
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
    // The others first, so that all know the same from here on.
    this.#send();
    // The figures of all endpoints come before changes to them.
    const endpoints = this.source.live.endpoints();
    const anything: ChangedEvent = { online: null, rows: null };
    const first = eventText('figures', this.#figures(endpoints)) + trafficText(true, endpoints);
    this.#pages.add(res, null, first + eventText('changed', anything), isSignedIn);
  }

  #send(): void {
    const endpoints = this.source.live.endpoints();
    const figures = eventText('figures', this.#figures(endpoints));
    const news =
      (figures === this.#sentFigures ? '' : figures) + this.#changedTraffic(endpoints) + this.#changes(endpoints);
    const now = this.source.clock.now();
    for (const [page] of this.#pages) {
      if (news !== '') page.send(news);
      else if (now - this.#lastEvent >= SILENCE_MS) page.send(eventText('alive', {}));
    }
    if (news === '' && now - this.#lastEvent < SILENCE_MS) return;
    this.#sentFigures = figures;
    this.#lastEvent = now;
  }

  #changes(endpoints: readonly LiveEndpoint[]): string {
    const before = this.#online;
    this.#online = onlineNow(this.source.live, endpoints);
    const ids = new Set([...missingIn(before, this.#online), ...missingIn(this.#online, before)]);
    const online = ids.size > MOST_CHANGES ? null : [...ids];
    const rows = this.source.changedRows();
    const hasNews = online?.length !== 0 || rows === null || Object.keys(rows).length > 0;
    const event: ChangedEvent = { online, rows };
    return hasNews ? eventText('changed', event) : '';
  }

  #changedTraffic(endpoints: readonly LiveEndpoint[]): string {
    const before = this.#traffic;
    this.#traffic = new Map(endpoints.map(({ id, traffic }) => [id, total(traffic)]));
    const changed = endpoints.filter(({ id }) => this.#traffic.get(id) !== (before.get(id) ?? 0));
    return changed.length === 0 ? '' : trafficText(false, changed);
  }

  #figures(endpoints: readonly LiveEndpoint[]): Figures {
    const { live, counters, version } = this.source;
    return {
      version,
      agents: live.sessions().length,
      endpoints: endpoints.length,
      connections: sum(Object.values(counters.connections)),
      responses: sum(counters.responses),
      errors: counters.responses[5] ?? 0,
      upstreamFailures: counters.upstreamFailures,
      refusedByPolicy: counters.refusedByPolicy,
    };
  }
}

/** The ids of agents, endpoints and labelled tunnels, each with its authtoken. */
function onlineNow(live: LiveView, endpoints: readonly LiveEndpoint[]): Map<string, string | null> {
  const sessions = new Map(live.sessions().map(({ id, credentialId }) => [id, credentialId]));
  const labelled = live.tunnels().filter(({ labels }) => labels !== null);
  return new Map([
    ...sessions,
    ...endpoints.map(({ id, credentialId }) => [id, credentialId] as const),
    ...labelled.map(({ id, sessionId }) => [id, sessions.get(sessionId) ?? null] as const),
  ]);
}

/** What is in the first and not in the second, and its authtokens. */
function missingIn(one: ReadonlyMap<string, string | null>, other: ReadonlyMap<string, string | null>): string[] {
  return [...one]
    .filter(([id]) => !other.has(id))
    .flatMap(([id, credential]) => [id, ...(credential ? [credential] : [])]);
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
