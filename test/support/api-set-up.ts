import type { RequestListener } from 'node:http';
import { onTestFinished } from 'vitest';
import { type AppOptions, createLocalApp, createRemoteApp } from '../../src/agent/api/app.ts';
import { InspectionApi } from '../../src/agent/api/inspection/inspection-router.ts';
import { Metrics } from '../../src/agent/api/metrics.ts';
import { DevicePage } from '../../src/agent/api/page/device-page.ts';
import { Inspector } from '../../src/agent/inspector/inspector.ts';
import { ShareLinks } from '../../src/agent/share-links.ts';
import { connectUpstream } from '../../src/agent/upstreams/connect-upstream.ts';
import { BrowserSessions } from '../../src/lib/http/browser-sessions.ts';
import { parseUpstream } from '../../src/lib/network/upstream-address.ts';
import { systemClock } from '../../src/lib/time/clock.ts';
import { PACKAGED_PAGES } from '../../src/packaged.ts';
import { silentLog } from './silent-log.ts';
import { setUpTunnels } from './tunnel-set-up.ts';

export const TOKEN = 'a-token-for-the-tests';

type TunnelOptions = Parameters<typeof setUpTunnels>[0];

/** The local and the remote API, with an in-memory gateway. */
export async function setUpApi(
  tunnelOptions: TunnelOptions = {},
  overrides: Partial<AppOptions> = {},
  sessions = new BrowserSessions(),
) {
  const removed = (id: string) => inspector.forget(id);
  const { tunnels, connector, guard, ...rest } = await setUpTunnels({ removed, ...tunnelOptions });
  const session = () => connector.status;
  const metrics = new Metrics({
    tunnelCounts: () => tunnels.shownCounts(),
    traffic: () => tunnels.traffic,
    session,
    remoteApi: () => 'failed',
    abandoned: () => 0,
  });
  const health = {
    tunnels,
    monitor: { refresh: async () => {} },
    remoteApi: null,
    upstreams: { look: () => {}, problem: null },
    session,
    version: '1.2.3',
    uptime: () => 42.5,
    addresses: () => ({ api: '127.0.0.1:4040' }),
  };
  const page = new DevicePage({
    sessions,
    health,
    folder: PACKAGED_PAGES,
    logTail: null,
    diagnose: null,
    canForwardTo: () => true,
    site: null,
    clock: systemClock,
  });
  const inspector: Inspector = new Inspector({
    observe: (id, capture) => tunnels.changes.captureBy(id, capture),
    clock: systemClock,
  });
  onTestFinished(() => inspector.stop());
  const inspection = new InspectionApi({
    tunnels,
    inspector,
    connect: ({ forwards_to }) =>
      connectUpstream(parseUpstream(forwards_to), { guard, verifyTls: true, connectMs: 2_000 }),
    version: '1.2.3',
    clock: systemClock,
  });
  const options: AppOptions = {
    ...health,
    history: { slots: [] },
    shareLinks: new ShareLinks(() => null),
    page,
    inspection,
    metrics: async () => metrics,
    log: silentLog,
    ...overrides,
  };
  const local: RequestListener = createLocalApp(options, '127.0.0.1', () => TOKEN);
  const remote: RequestListener = createRemoteApp(options, () => TOKEN);
  return { tunnels, connector, inspector, guard, options, local, remote, ...rest };
}
