import { ReportLine } from '../../agent-protocol/request-report.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import type { ReportQueue } from '../endpoints/request-feed.ts';

/** What is counted of requests. */
const TOPICS = ['paths', 'networks', 'statuses'] as const;
type Topic = (typeof TOPICS)[number];

/** How often the most frequent ones came, and by how much that may be too high. */
export interface Frequent {
  readonly key: string;
  readonly requests: number;
  readonly excess: number;
}

/** What one gateway has counted at an endpoint, since somebody looks: of an hour at most. */
export interface TopCounts extends Readonly<Record<Topic, readonly Frequent[]>> {
  /** When counting began, in milliseconds since 1970. */
  readonly since: number;
  readonly requests: number;
  /** Requests that were too many to be looked at one by one. */
  readonly missed: number;
}

/** Keys that are counted at a time. */
const CAPACITY = 200;
/** Keys that are told. */
const SHOWN = 20;
const MAX_KEY = 200;
/** An hour is forgotten in steps. */
const PARTS = 6;
const PART_MS = 600_000;
/** After the last look, counting ends. */
const LOOKED_MS = 180_000;
const CHECK_MS = 30_000;
/** Endpoints that are counted at a time: those that nobody has looked at for the longest end. */
const MAX_ENDPOINTS = 16;
const NO_STATUS = 'none';

/**
 * The most frequent of any number of keys in fixed memory ("space saving", Metwally 2005): a new key replaces the rarest one and takes over
 * its count, so that counts are never too low.
 */
export class FrequentKeys {
  readonly #counts = new Map<string, { requests: number; excess: number }>();

  constructor(private readonly capacity: number) {}

  add(key: string): void {
    const known = this.#counts.get(key);
    if (known !== undefined) {
      known.requests += 1;
      return;
    }
    let excess = 0;
    if (this.#counts.size >= this.capacity) {
      let rarest = '';
      excess = Number.POSITIVE_INFINITY;
      for (const [each, { requests }] of this.#counts) if (requests < excess) [rarest, excess] = [each, requests];
      this.#counts.delete(rarest);
    }
    this.#counts.set(key, { requests: excess + 1, excess });
  }

  get all(): Frequent[] {
    return [...this.#counts].map(([key, counts]) => ({ key, ...counts }));
  }
}

/** What was counted in ten minutes. */
class Part {
  requests = 0;
  missed = 0;
  readonly lists: Readonly<Record<Topic, FrequentKeys>> = {
    paths: new FrequentKeys(CAPACITY),
    networks: new FrequentKeys(CAPACITY),
    statuses: new FrequentKeys(CAPACITY),
  };
}

interface Watched {
  readonly since: number;
  lookedAt: number;
  partBegan: number;
  /** The newest is the last. */
  parts: Part[];
  readonly queues: Set<ReportQueue>;
}

/**
 * Which paths, client networks and statuses requests have most, at endpoints that somebody looks at. It listens to their requests as
 * agents do that watch them: where nobody looks, there is nothing.
 */
export class TopLists {
  readonly #watched = new Map<string, Watched>();
  #cancel: (() => void) | null = null;

  constructor(private readonly context: Pick<GatewayContext, 'endpoints' | 'clock'>) {}

  /** What was counted at a URL; begins if nobody has looked lately. */
  read(url: string): TopCounts {
    const { clock } = this.context;
    const watched = this.#watched.get(url) ?? this.#watch(url);
    watched.lookedAt = clock.now();
    // The one that was looked at last is the last to be given up.
    this.#watched.delete(url);
    this.#watched.set(url, watched);
    this.#turn(watched);
    const { since, parts } = watched;
    const sum = (of: (part: Part) => number) => parts.reduce((all, part) => all + of(part), 0);
    const list = (topic: Topic) => mostFrequent(parts.map(({ lists }) => lists[topic].all));
    return {
      ...{ since, requests: sum(({ requests }) => requests), missed: sum(({ missed }) => missed) },
      ...{ paths: list('paths'), networks: list('networks'), statuses: list('statuses') },
    };
  }

  stop(): void {
    for (const url of [...this.#watched.keys()]) this.#end(url);
  }

  #watch(url: string): Watched {
    const { endpoints, clock } = this.context;
    const [oldest] = this.#watched.keys();
    if (this.#watched.size >= MAX_ENDPOINTS && oldest !== undefined) this.#end(oldest);
    const now = clock.now();
    const watched: Watched = {
      ...{ since: Date.now(), lookedAt: now, partBegan: now, parts: [new Part()], queues: new Set() },
    };
    if (this.#watched.size === 0) endpoints.on('added', this.#added);
    this.#watched.set(url, watched);
    for (const endpoint of endpoints.atUrl(url)) this.#follow(endpoint, watched);
    this.#check();
    return watched;
  }

  readonly #added = (endpoint: OnlineEndpoint): void => {
    const watched = this.#watched.get(endpoint.url);
    if (watched !== undefined) this.#follow(endpoint, watched);
  };

  #follow(endpoint: OnlineEndpoint, watched: Watched): void {
    const queue = endpoint.watchRequests({
      take: (lines) => {
        this.#turn(watched);
        for (const line of lines.trimEnd().split('\n')) count(watched, line);
        return true;
      },
      hold: () => {},
      end: () => {
        queue.close();
        watched.queues.delete(queue);
      },
    });
    watched.queues.add(queue);
  }

  /** Begins further parts, and forgets those that are over. */
  #turn(watched: Watched): void {
    const passed = Math.floor((this.context.clock.now() - watched.partBegan) / PART_MS);
    if (passed < 1) return;
    watched.partBegan += passed * PART_MS;
    const fresh = Array.from({ length: Math.min(passed, PARTS) }, () => new Part());
    watched.parts = [...watched.parts, ...fresh].slice(-PARTS);
  }

  #check(): void {
    this.#cancel ??= this.context.clock.after(CHECK_MS, () => {
      this.#cancel = null;
      const now = this.context.clock.now();
      for (const [url, { lookedAt }] of this.#watched) if (now - lookedAt > LOOKED_MS) this.#end(url);
      if (this.#watched.size > 0) this.#check();
    });
  }

  #end(url: string): void {
    for (const queue of this.#watched.get(url)?.queues ?? []) queue.close();
    this.#watched.delete(url);
    if (this.#watched.size > 0) return;
    this.context.endpoints.off('added', this.#added);
    this.#cancel?.();
    this.#cancel = null;
  }
}

function count({ parts }: Watched, line: string): void {
  const part = parts.at(-1);
  if (part === undefined || line === '') return;
  const report = ReportLine.parse(JSON.parse(line));
  if ('dropped' in report) {
    part.requests += report.dropped;
    part.missed += report.dropped;
    return;
  }
  const { target, client, status } = report;
  part.requests += 1;
  const [path = ''] = target.split('?');
  part.lists.paths.add(path.slice(0, MAX_KEY));
  const [, address = client] = /^\[?(.*?)\]?:\d+$/.exec(client) ?? [];
  part.lists.networks.add(clientNetwork(address));
  part.lists.statuses.add(status === null ? NO_STATUS : String(status));
}

/** The most frequent of several lists. */
function mostFrequent(lists: readonly (readonly Frequent[])[]): Frequent[] {
  const all = new Map<string, Frequent>();
  for (const { key, requests, excess } of lists.flat()) {
    const before = all.get(key);
    all.set(key, { key, requests: (before?.requests ?? 0) + requests, excess: (before?.excess ?? 0) + excess });
  }
  return [...all.values()].sort((one, other) => other.requests - one.requests).slice(0, SHOWN);
}

/** What several gateways have counted. */
export function topOf(counts: readonly TopCounts[]): TopCounts {
  const sum = (of: (each: TopCounts) => number) => counts.reduce((all, each) => all + of(each), 0);
  const list = (topic: Topic) => mostFrequent(counts.map((each) => each[topic]));
  return {
    since: Math.min(...counts.map(({ since }) => since)),
    ...{ requests: sum(({ requests }) => requests), missed: sum(({ missed }) => missed) },
    ...{ paths: list('paths'), networks: list('networks'), statuses: list('statuses') },
  };
}
