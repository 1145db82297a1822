import { ksuidOf } from '../../lib/ids.ts';
import {
  endpointKey,
  type LiveEndpoint,
  type LiveFinder,
  type LiveSession,
  type LiveTunnel,
} from '../endpoints/live-view.ts';
import { matchesSelector } from '../endpoints/online-endpoint.ts';
import { merged } from '../endpoints/stored-endpoints.ts';
import type { Nodes } from './nodes.ts';
import type { OnlineRow, OnlineRows } from './online-rows.ts';

interface Sources {
  nodes: Pick<Nodes, 'self' | 'state'>;
  rows: OnlineRows;
  here: LiveFinder;
}

/** Whether another node serves it, and its authtoken has not moved it elsewhere. */
export function isShown({ node, taken }: OnlineRow, nodes: Pick<Nodes, 'state'>): boolean {
  return !taken && nodes.state(node) !== 'gone';
}

/** Finds what is online at all nodes: here first, then in the rows of the others. */
export function findInCluster({ nodes, rows, here }: Sources): LiveFinder {
  const shown = (found: Iterable<OnlineRow>) => [...found].filter((row) => isShown(row, nodes));
  const ofKind = (kind: string) => (row: OnlineRow) => row.view.id.startsWith(kind);
  const sessionsIn = (found: Iterable<OnlineRow>) => shown(found).map(({ view }) => view as LiveSession);
  const withOthers = (own: readonly LiveEndpoint[], found: Iterable<OnlineRow>): LiveEndpoint[] => {
    const there = shown(found).map((row) => ({ node: row.node, endpoint: endpointIn(row) }));
    return unique(ofOneNode([...own.map((endpoint) => ({ node: nodes.self, endpoint })), ...there], nodes.self));
  };
  /** Whether it is the one of its agent's endpoints at several nodes that is shown. */
  const isTheShown = (row: OnlineRow): boolean => {
    const endpoint = endpointIn(row);
    const key = endpointKey(endpoint);
    if (here.tunnelsOf(endpoint.sessionId ?? '').some(({ publicUrl }) => publicUrl === endpoint.url)) return false;
    const rivals = shown(rows.ofSession(endpoint.sessionId ?? '')).filter(ofKind('ep_'));
    return rivals.every((rival) => rival.node >= row.node || endpointKey(endpointIn(rival)) !== key);
  };
  const endpointsIn = (found: Iterable<OnlineRow>) => shown(found).filter(ofKind('ep_')).filter(isTheShown);
  const labelledIn = (found: Iterable<OnlineRow>) =>
    shown(found)
      .filter(ofKind('tn_'))
      .map(({ view }) => view as LiveTunnel);
  /** Rows of other nodes with ids of a kind below one. */
  function* below(kind: string, id: string | null) {
    // Sorts after all identifiers of the kind.
    const bound = id ?? `${kind.slice(0, -1)}\u{60}`;
    for (const each of rows.idsBelow(bound)) {
      if (!each.startsWith(kind)) return;
      yield rows.withId(each);
    }
  }
  function* sessionsBelow(id: string | null) {
    for (const found of below('ts_', id)) yield* sessionsIn(found);
  }
  function* endpointRowsBelow(id: string | null) {
    for (const found of below('ep_', id)) yield* endpointsIn(found);
  }
  function* endpointsBelow(id: string | null) {
    for (const row of endpointRowsBelow(id)) yield endpointIn(row);
  }
  function* labelledBelow(id: string | null) {
    for (const found of below('tn_', id)) yield* labelledIn(found);
  }
  function* tunnelsBelow(id: string | null) {
    for (const row of endpointRowsBelow(id && `ep_${ksuidOf(id)}`)) yield tunnelOf(endpointIn(row));
  }
  return {
    session: (id) => here.session(id) ?? sessionsIn(rows.withId(id))[0] ?? null,
    sessionsOf: (id) => unique([...here.sessionsOf(id), ...sessionsIn(rows.sessionsOf(id))]),
    sessionsWithBudget: () => here.sessionsWithBudget(),
    sessionsBelow: (id) => merged([here.sessionsBelow(id), sessionsBelow(id)]),
    tunnel: (id) =>
      here.tunnel(id) ??
      labelledIn(rows.withId(id))[0] ??
      endpointsIn(rows.withId(`ep_${ksuidOf(id)}`)).map((row) => tunnelOf(endpointIn(row)))[0] ??
      null,
    tunnelsOf: (id) =>
      unique([
        ...here.tunnelsOf(id),
        ...labelledIn(rows.ofSession(id)),
        ...endpointsIn(rows.ofSession(id)).map((row) => tunnelOf(endpointIn(row))),
      ]),
    tunnelsWith: (labels) => [
      ...here.tunnelsWith(labels),
      ...labelledIn(rows.labelled).filter((each) => matchesSelector(each.labels ?? {}, labels)),
    ],
    tunnelsBelow: (id) => merged([here.tunnelsBelow(id), labelledBelow(id), tunnelsBelow(id)]),
    endpoint: (id) => here.endpoint(id) ?? endpointsIn(rows.withId(id)).map(endpointIn)[0] ?? null,
    endpointsOf: (id) => withOthers(here.endpointsOf(id), rows.endpointsOf(id)),
    endpointsAt: (place) => withOthers(here.endpointsAt(place), rows.at(place)),
    endpointsWithUrl: (url) => withOthers(here.endpointsWithUrl(url), rows.withUrl(url)),
    endpointsWithPeople: () => withOthers(here.endpointsWithPeople(), rows.withPeople),
    endpointsBelow: (id) => merged([here.endpointsBelow(id), endpointsBelow(id)]),
  };
}

export const endpointIn = ({ view }: OnlineRow): LiveEndpoint => ({ ...(view as LiveEndpoint), traffic: null });

export function tunnelOf(endpoint: LiveEndpoint): LiveTunnel {
  return {
    id: endpoint.tunnelId ?? `tn_${ksuidOf(endpoint.id)}`,
    sessionId: endpoint.sessionId ?? '',
    endpointId: endpoint.id,
    publicUrl: endpoint.url,
    proto: endpoint.proto,
    labels: null,
    startedAt: endpoint.createdAt,
    metadata: endpoint.metadata,
    forwardsTo: endpoint.upstreamUrl ?? '',
  };
}

/** An agent with sessions at two nodes has each of its endpoints at both: those at this node are shown, or else at the first. */
export function ofOneNode(all: readonly { node: string; endpoint: LiveEndpoint }[], self: string): LiveEndpoint[] {
  const shown = new Map<string, string>();
  const isBefore = (node: string, other: string) => other !== self && (node === self || node < other);
  for (const { node, endpoint } of all) {
    const key = endpointKey(endpoint);
    const first = shown.get(key);
    if (first === undefined || isBefore(node, first)) shown.set(key, node);
  }
  return all.filter(({ node, endpoint }) => shown.get(endpointKey(endpoint)) === node).map(({ endpoint }) => endpoint);
}

/** An agent that moves is at two nodes for a moment. */
export function unique<T extends { id: string }>(all: readonly T[]): T[] {
  const seen = new Set<string>();
  return all.filter(({ id }) => !seen.has(id) && seen.add(id));
}
