import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { LiveView } from '../../endpoints/live-view.ts';
import type { TrafficCounters } from '../../metrics/traffic-counters.ts';
import { refuse } from '../refuse.ts';

/** Each event of the feed, `figures`. */
export interface Figures {
  readonly version: string;
  readonly agents: number;
  readonly endpoints: number;
  /** Open connections of clients. */
  readonly connections: number;
  /** Responses to clients since the gateway started, and those with status 5xx among them. */
  readonly responses: number;
  readonly errors: number;
  readonly upstreamFailures: number;
  readonly refusedByPolicy: number;
  /** Changes when an agent or an endpoint comes or goes: lists are out of date then. */
  readonly stamp: string;
}

const INTERVAL_MS = 2_000;

interface Source {
  live: LiveView;
  counters: TrafficCounters;
  version: string;
  clock: Clock;
}

/** Sends open dashboards what is online, as server-sent events. Without an open one, nothing runs. */
export class DashboardFeed {
  /** Each with whether it is still signed in. */
  readonly #pages: EventStreams<() => boolean>;
  #sent = '';
  #lastEvent = 0;

  constructor(private readonly source: Source) {
    this.#pages = new EventStreams(source.clock, INTERVAL_MS, () => this.#send());
  }

  /** @param isSignedIn asked again before each event */
  open(res: Response, isSignedIn: () => boolean): void {
    if (this.#pages.isFull) {
      throw refuse(429, 226, `too many open dashboards: at most ${MAX_STREAMS}; close one`, { retryAfter: 10 });
    }
    this.#pages.add(res, isSignedIn, eventText('figures', this.#figures()));
  }

  #send(): void {
    const text = eventText('figures', this.#figures());
    const now = this.source.clock.now();
    const isNews = text !== this.#sent;
    for (const [page, isSignedIn] of this.#pages) {
      if (!isSignedIn()) page.end();
      // A page that reads nothing gets nothing more; it notices the silence and reconnects.
      else if (page.writableNeedDrain) page.destroy();
      else if (isNews) page.write(text);
      else if (now - this.#lastEvent >= SILENCE_MS) page.write(eventText('alive', {}));
    }
    if (!isNews && now - this.#lastEvent < SILENCE_MS) return;
    this.#sent = text;
    this.#lastEvent = now;
  }

  #figures(): Figures {
    const { live, counters, version } = this.source;
    const agents = live.sessions();
    const endpoints = live.endpoints();
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

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
