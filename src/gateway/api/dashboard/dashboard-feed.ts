import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import {
  type CountedElsewhere,
  type EndpointFigures,
  endpointKey,
  figuresOf,
  type GatewayTotals,
  hasTraffic,
  type LiveEndpoint,
  type LiveView,
  NOBODY_ELSE,
} from '../../endpoints/live-view.ts';
import type { EdgeCounters } from '../../metrics/edge-counters.ts';
import type { RowChanges } from '../../store/sql/changed-rows.ts';
import { refuse } from '../request.ts';

/** Each event of the feed, `figures`: of all gateways together. */
export interface Figures extends GatewayTotals {
  readonly version: string;
  readonly agents: number;
  readonly endpoints: number;
  /** Addresses of gateways that do not say what they have counted. */
  readonly missing: readonly string[];
  /** How old what is shown may be, as the shared database cannot be asked; null: it is current. */
  readonly staleSeconds: number | null;
}

export type { EndpointFigures };

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
  counters: EdgeCounters;
  version: string;
  /** See {@link Figures}; left out: always current. */
  staleSeconds?: (() => number | null) | undefined;
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
  #traffic: ReadonlyMap<string, EndpointFigures> = new Map();
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
    const anything: ChangedEvent = { online: null, rows: null };
    const first = this.#sentFigures + trafficText(true, this.#traffic);
    this.#pages.add(res, null, first + eventText('changed', anything), isSignedIn);
  }

  #send(): void {
    const endpoints = this.source.live.endpoints();
    const elsewhere = this.source.live.countedElsewhere?.() ?? NOBODY_ELSE;
    const figures = eventText('figures', this.#figures(endpoints, elsewhere));
    const traffic = this.#changedTraffic(trafficOf(endpoints, elsewhere));
    const news = (figures === this.#sentFigures ? '' : figures) + traffic + this.#changes(endpoints);
    const now = this.source.clock.now();
    for (const [page] of this.#pages) {
      if (news !== '') page.send(news);
      else if (now - this.#lastEvent >= SILENCE_MS) page.send(eventText('alive', {}));
    }
    this.#sentFigures = figures;
    if (news === '' && now - this.#lastEvent < SILENCE_MS) return;
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

  #changedTraffic(traffic: ReadonlyMap<string, EndpointFigures>): string {
    const before = this.#traffic;
    this.#traffic = traffic;
    const isNew = ([id, figures]: [string, EndpointFigures]) => String(before.get(id)) !== String(figures);
    const changed = [...traffic].filter(isNew);
    return changed.length === 0 ? '' : trafficText(false, changed);
  }

  #figures(endpoints: readonly LiveEndpoint[], { counted, missing }: CountedElsewhere): Figures {
    const { live, counters, version, staleSeconds } = this.source;
    const all = [counters.totals, ...counted.map(({ totals }) => totals)];
    const sum = (name: keyof GatewayTotals) => all.reduce((total, each) => total + each[name], 0);
    return {
      version,
      agents: live.sessions().length,
      endpoints: endpoints.length,
      connections: sum('connections'),
      responses: sum('responses'),
      errors: sum('errors'),
      upstreamFailures: sum('upstreamFailures'),
      refusedByPolicy: sum('refusedByPolicy'),
      missing,
      staleSeconds: staleSeconds?.() ?? null,
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

/** What all gateways have counted of each endpoint with traffic, by its id. */
function trafficOf(
  endpoints: readonly LiveEndpoint[],
  { counted }: CountedElsewhere,
): ReadonlyMap<string, EndpointFigures> {
  const elsewhere = counted.map((node) => new Map(node.endpoints));
  const all = endpoints.map((endpoint): [string, EndpointFigures] => {
    const there = elsewhere.map((figures) => figures.get(endpointKey(endpoint)));
    return [endpoint.id, there.reduce<EndpointFigures>(sumOf, figuresOf(endpoint))];
  });
  return new Map(all.filter(([, figures]) => hasTraffic(figures)));
}

function sumOf(one: EndpointFigures, other: EndpointFigures = [0, 0, 0, 0]): EndpointFigures {
  return [one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]];
}

function trafficText(isAll: boolean, figures: Iterable<readonly [id: string, figures: EndpointFigures]>): string {
  const event: TrafficEvent = { isAll, endpoints: Object.fromEntries(figures) };
  return eventText('traffic', event);
}
