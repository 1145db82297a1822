import { placeOf } from '../../src/gateway/endpoints/endpoint-address.ts';
import type {
  LiveEndpoint,
  LiveFinder,
  LiveSession,
  LiveTunnel,
  LiveView,
} from '../../src/gateway/endpoints/live-view.ts';
import { matchesSelector } from '../../src/gateway/endpoints/online-endpoint.ts';

export const nothingOnline: LiveView = liveOf({});

/** A view of what is given, which finds all of it by walking. */
export function liveOf(given: Partial<LiveView>): LiveView {
  const none = () => [];
  const { sessions = none, tunnels = none, endpoints = none } = given;
  return {
    ...{ sessions, tunnels, endpoints, command: () => false, revoke: async () => {} },
    counts: () => ({
      sessions: sessions().length,
      endpoints: endpoints().reduce(
        (counts, { proto }) => counts.set(proto, (counts.get(proto) ?? 0) + 1),
        new Map<string, number>(),
      ),
      labelled: tunnels().filter(({ labels }) => labels !== null).length,
    }),
    find: foundIn({ sessions, tunnels, endpoints }),
    ...given,
  };
}

export function foundIn({
  sessions,
  tunnels,
  endpoints,
}: Pick<LiveView, 'sessions' | 'tunnels' | 'endpoints'>): LiveFinder {
  const below = <T extends { id: string }>(all: readonly T[], id: string | null): T[] =>
    all.filter((each) => id === null || each.id < id).sort((a, b) => (a.id < b.id ? 1 : -1));
  return {
    session: (id) => sessions().find((each: LiveSession) => each.id === id) ?? null,
    sessionsOf: (id) => sessions().filter(({ credentialId }) => credentialId === id),
    sessionsWithBudget: () => sessions().filter(({ budgetPercent }) => budgetPercent !== undefined),
    sessionsBelow: (id) => below(sessions(), id),
    tunnel: (id) => tunnels().find((each: LiveTunnel) => each.id === id) ?? null,
    tunnelsOf: (id) => tunnels().filter(({ sessionId }) => sessionId === id),
    tunnelsWith: (labels) => tunnels().filter((each) => each.labels !== null && matchesSelector(each.labels, labels)),
    tunnelsBelow: (id) => below(tunnels(), id),
    endpoint: (id) => endpoints().find((each: LiveEndpoint) => each.id === id) ?? null,
    endpointsOf: (id) => endpoints().filter(({ credentialId }) => credentialId === id),
    endpointsAt: (place) => endpoints().filter((each) => placeOf(each) === place),
    endpointsWithUrl: (url) => endpoints().filter((each) => each.url === url),
    endpointsWithPeople: () => endpoints().filter(({ admission }) => admission !== undefined),
    endpointsBelow: (id) => below(endpoints(), id),
  };
}
