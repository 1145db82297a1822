import { expect, it } from 'vitest';
import { tunnelOf } from '../../../src/gateway/cluster/cluster-finder.ts';
import { ClusterLive } from '../../../src/gateway/cluster/cluster-live.ts';
import { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import { endpointRow, type OnlineRow, OnlineRows, placelessRow } from '../../../src/gateway/cluster/online-rows.ts';
import { placeOf } from '../../../src/gateway/endpoints/endpoint-address.ts';
import type { LiveEndpoint, LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import type { Database } from '../../../src/gateway/store/sql/database.ts';
import { foundIn, liveOf, nothingOnline } from '../../support/nothing-online.ts';
import { seeded } from '../../support/seeded.ts';
import { silentLog } from '../../support/silent-log.ts';

const endpoint = (id: string, sessionId: string, connectionNumber?: number): LiveEndpoint => ({
  ...{ id, type: 'ephemeral', proto: 'https', host: 'a.test', port: 443, url: 'https://a.test' },
  ...{ createdAt: '', updatedAt: '', metadata: '', description: '', name: '', tunnelId: null, edgeId: null },
  ...{ credentialId: 'cr_1', ownerId: null, upstreamUrl: null, poolingEnabled: false, internal: false, traffic: null },
  sessionId,
  ...(connectionNumber !== undefined && { connectionNumber }),
});

function liveWith(rows: OnlineRow[], here: LiveEndpoint[] = []): ClusterLive {
  return new ClusterLive({
    database: { onRowApplied: () => {}, allValues: () => [] } as unknown as Database,
    nodes: new Nodes('self'),
    rows: { others: rows } as unknown as OnlineRows,
    here: { ...nothingOnline, endpoints: () => here },
    counted: null,
    appliedEverywhere: async () => {},
    log: silentLog,
  });
}

it('shows an endpoint of an agent with two sessions once, as it is here if it is', () => {
  const there = [endpointRow('n1', endpoint('ep_1', 'ts_1')), endpointRow('n2', endpoint('ep_2', 'ts_1', 1))];
  expect(
    liveWith(there)
      .endpoints()
      .map(({ id }) => id),
  ).toEqual(['ep_1']);
  expect(liveWith(there).tunnels()).toHaveLength(1);
  expect(
    liveWith(there.slice(0, 1), [endpoint('ep_2', 'ts_1', 1)])
      .endpoints()
      .map(({ id }) => id),
  ).toEqual(['ep_2']);
});

it('shows all members of a pool', () => {
  const there = [endpointRow('n1', endpoint('ep_1', 'ts_1')), endpointRow('n1', endpoint('ep_2', 'ts_1'))];
  expect(liveWith([...there, endpointRow('n2', endpoint('ep_3', 'ts_3'))]).endpoints()).toHaveLength(3);
});

it('finds what lists of all have, after 10,000 rows of other gateways came, changed and went', () => {
  const next = seeded(1);
  const random = (end: number) => Math.floor(next() * end);
  const stored = new Map<string, object>();
  const listeners: ((table: string, key: string) => void)[] = [];
  const database = {
    onRowApplied: (listener: (table: string, key: string) => void) => void listeners.push(listener),
    all: (_sql: string, [key]: string[]) => (key === undefined ? [] : (stored.get(key) ?? [])),
    allValues: () => [],
  } as unknown as Database;
  const rows = new OnlineRows(database, 'self', { change: () => {}, own: () => {} });
  const here = [hostAt(endpoint('ep_050', 'ts_3'), 2), hostAt(endpoint('ep_051', 'ts_9'), 1)];
  const live = new ClusterLive({
    ...{ database, rows, here: liveOf({ endpoints: () => here, tunnels: () => here.map(tunnelOf) }) },
    ...{ nodes: new Nodes('self'), counted: null, appliedEverywhere: async () => {}, log: silentLog },
  });
  const anyRow = (): OnlineRow => {
    // All but the node follows from the number: an identifier stands for one object.
    const [node, at] = [`n${random(3)}`, random(40)];
    const number = String(at).padStart(3, '0');
    const credentialId = `cr_${at % 4}`;
    const kind = random(4);
    if (kind === 0) return placelessRow(node, { id: `ts_${at % 12}`, credentialId } as LiveSession);
    const sessionId = `ts_${at % 12}`;
    if (kind === 1) {
      const labels = { kind: String(at % 3) };
      return placelessRow(node, { id: `tn_l${number}`, sessionId, labels, endpointId: null, credentialId } as never);
    }
    const bound = { ...hostAt(endpoint(`ep_${number}`, sessionId), at % 5), credentialId };
    return { ...endpointRow(node, bound), taken: random(6) === 0 };
  };
  for (let step = 1; step <= 10_000; step += 1) {
    const row = anyRow();
    if (random(2) === 0) stored.delete(row.key);
    else stored.set(row.key, [{ ...row, pooled: 0, taken: row.taken ? 1 : 0, view: JSON.stringify(row.view) }]);
    for (const applied of listeners) applied('online', row.key);
    if (step % 250 > 0) continue;
    const walked = foundIn({
      sessions: () => live.sessions(),
      tunnels: () => live.tunnels(),
      endpoints: () => live.endpoints(),
    });
    const [session, bound, place] = [
      `ts_${random(12)}`,
      String(random(40)).padStart(3, '0'),
      placeOf(hostAt(endpoint('', ''), random(5))),
    ];
    for (const id of [null, `ep_${bound}`])
      expect([...live.find.endpointsBelow(id)]).toEqual([...walked.endpointsBelow(id)]);
    for (const id of [null, `tn_${bound}`, `tn_l${bound}`])
      expect([...live.find.tunnelsBelow(id)]).toEqual([...walked.tunnelsBelow(id)]);
    expect(idsOf(live.find.sessionsBelow(null))).toEqual(idsOf(walked.sessionsBelow(null)));
    expect(new Set(idsOf(live.find.endpointsAt(place)))).toEqual(new Set(idsOf(walked.endpointsAt(place))));
    const url = `https://${random(5)}.test`;
    expect(new Set(idsOf(live.find.endpointsWithUrl(url)))).toEqual(new Set(idsOf(walked.endpointsWithUrl(url))));
    expect(new Set(idsOf(live.find.endpointsWithPeople()))).toEqual(new Set(idsOf(walked.endpointsWithPeople())));
    expect(new Set(idsOf(live.find.endpointsOf('cr_1')))).toEqual(new Set(idsOf(walked.endpointsOf('cr_1'))));
    expect(new Set(idsOf(live.find.sessionsOf('cr_1')))).toEqual(new Set(idsOf(walked.sessionsOf('cr_1'))));
    expect(new Set(idsOf(live.find.tunnelsOf(session)))).toEqual(new Set(idsOf(walked.tunnelsOf(session))));
    expect(new Set(idsOf(live.find.tunnelsWith({ kind: '1' })))).toEqual(
      new Set(idsOf(walked.tunnelsWith({ kind: '1' }))),
    );
    for (const id of [`ep_${bound}`, 'ep_050']) expect(live.find.endpoint(id)?.id).toBe(walked.endpoint(id)?.id);
    for (const id of [`tn_${bound}`, `tn_l${bound}`]) expect(live.find.tunnel(id)?.id).toBe(walked.tunnel(id)?.id);
    expect([...rows.others].length).toBeGreaterThan(0);
    expect(live.find.session(session)?.id).toBe(walked.session(session)?.id);
  }
});

const idsOf = (all: Iterable<{ id: string }>): string[] => [...all].map(({ id }) => id);

function hostAt(bound: LiveEndpoint, number: number): LiveEndpoint {
  // An agent binds an endpoint with one policy at all of its nodes.
  const people = number < 2 && { admission: { everyone: true, emails: [], groups: [] } };
  return { ...bound, host: `${number}.test`, url: `https://${number}.test`, ...people };
}
