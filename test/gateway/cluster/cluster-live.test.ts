import { expect, it } from 'vitest';
import { ClusterLive } from '../../../src/gateway/cluster/cluster-live.ts';
import { Nodes } from '../../../src/gateway/cluster/nodes.ts';
import { endpointRow, type OnlineRow, type OnlineRows } from '../../../src/gateway/cluster/online-rows.ts';
import type { LiveEndpoint } from '../../../src/gateway/endpoints/live-view.ts';
import type { Database } from '../../../src/gateway/store/sql/database.ts';
import { nothingOnline } from '../../support/nothing-online.ts';
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
