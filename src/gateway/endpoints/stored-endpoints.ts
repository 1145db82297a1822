import { placeOf } from './endpoint-address.ts';
import { type LiveCounts, type LiveEndpoint, type LiveFinder, type LiveView, NOBODY_ELSE } from './live-view.ts';

/** Endpoints that are in the database. */
export interface StoredEndpoints {
  all(): readonly LiveEndpoint[];
  find: Pick<LiveFinder, 'endpoint' | 'endpointsAt' | 'endpointsWithUrl' | 'endpointsWithPeople' | 'endpointsBelow'>;
}

/** Adds the endpoints that are in the database to what agents have online. */
export const withStored = (agents: LiveView, stored: StoredEndpoints): LiveView => ({
  sessions: () => agents.sessions(),
  tunnels: () => agents.tunnels(),
  endpoints: () => [...agents.endpoints(), ...stored.all()],
  counts: () => sumOfCounts(agents.counts(), stored.all()),
  find: {
    ...agents.find,
    endpoint: (id) => agents.find.endpoint(id) ?? stored.find.endpoint(id),
    endpointsAt: (place) => [...agents.find.endpointsAt(place), ...stored.find.endpointsAt(place)],
    endpointsWithUrl: (url) => [...agents.find.endpointsWithUrl(url), ...stored.find.endpointsWithUrl(url)],
    endpointsWithPeople: () => [...agents.find.endpointsWithPeople(), ...stored.find.endpointsWithPeople()],
    endpointsBelow: (id) => merged([agents.find.endpointsBelow(id), stored.find.endpointsBelow(id)]),
  },
  gateways: () => agents.gateways?.() ?? [],
  holders: () => agents.holders?.() ?? new Map(),
  countedElsewhere: () => agents.countedElsewhere?.() ?? NOBODY_ELSE,
  askElsewhere: async () => (await agents.askElsewhere?.()) ?? NOBODY_ELSE,
  command: (...sent) => agents.command(...sent),
  revoke: (revoked) => agents.revoke(revoked),
});

/** One sequence of several, each with its last id first. Of those with one id, the first is taken. */
export function* merged<T extends { id: string }>(sources: readonly Iterable<T>[]): Generator<T> {
  const heads = sources.map((source) => {
    const iterator = source[Symbol.iterator]();
    return { iterator, item: iterator.next() };
  });
  for (;;) {
    let last: string | null = null;
    for (const { item } of heads) if (!item.done && (last === null || item.value.id > last)) last = item.value.id;
    if (last === null) return;
    let isFirst = true;
    for (const head of heads) {
      while (!head.item.done && head.item.value.id === last) {
        if (isFirst) yield head.item.value;
        isFirst = false;
        head.item = head.iterator.next();
      }
    }
  }
}

/** Finds endpoints by walking through all: those of TLS edges are few. */
export function foundAmong(endpoints: readonly LiveEndpoint[]): StoredEndpoints['find'] {
  return {
    endpoint: (id) => endpoints.find((each) => each.id === id) ?? null,
    endpointsAt: (place) => endpoints.filter((each) => placeOf(each) === place),
    endpointsWithUrl: (url) => endpoints.filter((each) => each.url === url),
    endpointsWithPeople: () => endpoints.filter(({ admission }) => admission !== undefined),
    endpointsBelow: (id) =>
      endpoints.filter((each) => id === null || each.id < id).sort((a, b) => (a.id < b.id ? 1 : -1)),
  };
}

function sumOfCounts(counts: LiveCounts, stored: readonly LiveEndpoint[]): LiveCounts {
  const endpoints = new Map(counts.endpoints);
  for (const { proto } of stored) endpoints.set(proto, (endpoints.get(proto) ?? 0) + 1);
  return { ...counts, endpoints };
}
