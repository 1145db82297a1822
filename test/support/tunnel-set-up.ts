import { join } from 'node:path';
import type { Adapter } from 'lowdb';
import { onTestFinished } from 'vitest';
import type { z } from 'zod';
import type { AgentContext } from '../../src/agent/context/agent-context.ts';
import { TunnelRequest } from '../../src/agent/tunnels/tunnel.ts';
import { TunnelManager, type TunnelManagerOptions } from '../../src/agent/tunnels/tunnel-manager.ts';
import { type StoredTunnels, TunnelStore, tunnelsCodec } from '../../src/agent/tunnels/tunnels-file.ts';
import { UpstreamDialer } from '../../src/agent/upstreams/upstream-dialer.ts';
import { LocalhostResolver, UpstreamGuard } from '../../src/agent/upstreams/upstream-guard.ts';
import { DurableFile } from '../../src/lib/files/durable-file.ts';
import { systemClock } from '../../src/lib/time/clock.ts';
import { parseUpstreamRules } from '../../src/settings/upstream-rules.ts';
import { FakeConnector } from './fake-connector.ts';
import { silentLog } from './silent-log.ts';
import { temporaryFolder } from './temporary-folder.ts';

interface SetUpOptions extends Partial<Omit<TunnelManagerOptions, 'connector'> & Pick<AgentContext, 'clock' | 'log'>> {
  connector?: FakeConnector;
  adapter?: Adapter<StoredTunnels>;
  folder?: string;
}

/** A tunnel manager with a temporary folder and an online in-memory gateway. */
export async function setUpTunnels({
  adapter,
  folder,
  connector = new FakeConnector(),
  clock = systemClock,
  log = silentLog,
  ...options
}: SetUpOptions = {}) {
  const socketFolder = folder ?? temporaryFolder();
  const path = join(socketFolder, 'tunnels.json');
  const store = new TunnelStore(adapter ?? new DurableFile({ path, codec: tunnelsCodec, log: silentLog }));
  // As on machines that know ::1 by this name, so that the SDK would get localhost.
  const localhost = new LocalhostResolver(async () => [
    { address: '127.0.0.1', family: 4 },
    { address: '::1', family: 6 },
  ]);
  const guard = new UpstreamGuard(parseUpstreamRules('loopback,private,unix'), undefined, localhost);
  const dialer = new UpstreamDialer({ guard, log: silentLog, socketFolder, verifyTls: true, connectMs: 2_000 });
  const tunnels = new TunnelManager(
    { clock, log },
    {
      ...{ connector, store, guard, dialer },
      defaultPolicies: { inbound: [], outbound: [] },
      reservedDomains: ['agent.localhost'],
      ...options,
    },
  );
  await tunnels.start();
  connector.start();
  onTestFinished(() => tunnels.stop());
  return { connector, store, tunnels, guard, folder: socketFolder, path };
}

/** A valid parsed request, with the given members. */
export function tunnelRequest(request: Partial<z.input<typeof TunnelRequest>> = {}): TunnelRequest {
  return TunnelRequest.parse({ protocol: 'http', forwards_to: 'localhost:8001', ...request });
}
