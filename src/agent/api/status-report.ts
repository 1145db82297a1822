import { z } from 'zod';
import { SESSION_STATES, type SessionStatus } from '../connectors/connector.ts';
import { TUNNEL_STATES, type TunnelStatus } from '../tunnels/tunnel.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import type { Metrics } from './metrics.ts';

export interface RemoteApi {
  readonly url: string;
  readonly status: TunnelStatus;
}

/** Connections that upstreams keep open after clients have left. */
export interface AbandonedUpstreams {
  look(): void;
  /** Why few connections are left for others, as of the last look; null when there are enough. */
  readonly problem: string | null;
}

export interface HealthSource {
  tunnels: TunnelManager;
  upstreams: AbandonedUpstreams;
  /** Null without AGENT_DOMAIN. */
  remoteApi: RemoteApi | null;
  session: () => SessionStatus;
  /** Loaded when they are first asked for: that takes longer than the rest of the start. */
  metrics: () => Promise<Metrics>;
  version: string;
  /** Seconds since the start. */
  uptime: () => number;
  /** The agent's and its gateway's addresses by their names in `/status` (`api`, `agent`, …). */
  addresses: () => Record<string, string | null>;
}

/** Why something failed: the gateway's or the agent's code, if there is one, and a message. */
export const LastError = z.object({ code: z.string().nullable(), message: z.string() }).nullable();

export const Count = z.int().nonnegative();

export const StatusReport = z.object({
  version: z.string(),
  uptime_seconds: Count,
  session: z.object({
    state: z.enum(SESSION_STATES),
    since: z.iso.datetime(),
    gateway: z.string(),
    /** Where the device has a second session; left out: nowhere. */
    second_gateway: z.string().optional(),
    reconnects: Count,
    last_error: LastError,
  }),
  tunnels: z.object({
    total: Count,
    online: Count,
    degraded: Count,
    connecting: Count,
    offline: Count,
    failed: Count,
  }),
  /** The agent's own domain; null without one. */
  remote_api: z
    .object({ url: z.string(), status: z.enum(TUNNEL_STATES), since: z.iso.datetime(), last_error: LastError })
    .nullable(),
  /** `last_error`: why the last change of a tunnel could not be saved; null when it was. */
  storage: z.object({ last_error: LastError }),
  addresses: z.record(z.string(), z.string().nullable()),
});
export type StatusReport = z.infer<typeof StatusReport>;

function presentRemoteApi({ url, status: { state, since, lastError } }: RemoteApi): StatusReport['remote_api'] {
  return { url, status: state, since: since.toISOString(), last_error: lastError };
}

export function presentStatus(source: Omit<HealthSource, 'metrics'>): StatusReport {
  const { version, uptime, session, tunnels, remoteApi, addresses } = source;
  const { state, since, gateway, secondGateway, reconnects, lastError } = session();
  const failure = tunnels.saveFailure;
  return {
    version,
    uptime_seconds: Math.floor(uptime()),
    session: {
      ...{ state, since: since.toISOString(), gateway },
      ...(secondGateway !== undefined && { second_gateway: secondGateway }),
      ...{ reconnects, last_error: lastError },
    },
    tunnels: { total: tunnels.list().length, ...tunnels.shownCounts() },
    remote_api: remoteApi && presentRemoteApi(remoteApi),
    storage: { last_error: failure && { code: failure.code, message: failure.message } },
    addresses: addresses(),
  };
}
