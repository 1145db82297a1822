import { z } from 'zod';
import { SESSION_STATES, type SessionStatus } from '../connectors/connector.ts';
import type { BudgetState } from '../connectors/data-budget.ts';
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

/** How the agent takes the time. */
export interface ClockReport {
  source: 'system' | 'gateway';
  /** By how much the system's clock is ahead of the proved time; null when that is not needed. */
  aheadMs: number | null;
  /** Why the gateway has not proved the time, though that was needed; null when it has, or was not. */
  problem: string | null;
}

export interface HealthSource {
  tunnels: TunnelManager;
  upstreams: AbandonedUpstreams;
  /** Null without AGENT_DOMAIN. */
  remoteApi: RemoteApi | null;
  session: () => SessionStatus;
  /** Loaded when they are first asked for: that takes longer than the rest of the start. */
  metrics: () => Promise<Metrics>;
  /** Null without AGENT_DATA_BUDGET; left out: none either. */
  budget?: () => BudgetState | null;
  version: string;
  /** Seconds since the start. */
  uptime: () => number;
  /** Which time the agent uses; left out: that of the system. */
  time?: () => ClockReport;
  /** The agent's and its gateway's addresses by their names in `/status` (`api`, `agent`, …). */
  addresses: () => Record<string, string | null>;
}

/** Why something failed: the gateway's or the agent's code, if there is one, and a message. */
export const LastError = z
  .object({
    code: z.string().nullable().describe("The gateway's or the agent's error code; null without one."),
    message: z.string().describe('What failed, for people.'),
  })
  .nullable();

export const Count = z.int().nonnegative();

export const StatusReport = z.object({
  version: z.string().describe('The version of device-agent.'),
  uptime_seconds: Count.describe('Seconds since the start of the agent.'),
  session: z
    .object({
      state: z.enum(SESSION_STATES).describe('Whether the agent is connected to its gateway.'),
      since: z.iso.datetime().describe('When it changed to this state.'),
      gateway: z.string().describe('The address of the gateway, `host:port`.'),
      second_gateway: z.string().optional().describe('Where the device has a second session; left out: nowhere.'),
      reconnects: Count.describe('How often the session was established again since the start.'),
      last_error: LastError.describe('Why the last attempt to connect failed, or the session ended; null without.'),
    })
    .describe('The connection to the gateway.'),
  tunnels: z
    .object({
      total: Count.describe('All tunnels.'),
      online: Count.describe('Those that clients can use.'),
      degraded: Count.describe('Those that are online, but whose upstream accepts no connections.'),
      connecting: Count.describe('Those that are not bound yet in this session.'),
      offline: Count.describe('Those whose session is lost.'),
      failed: Count.describe('Those that the gateway has refused; the agent retries.'),
    })
    .describe('How many tunnels are in which state.'),
  remote_api: z
    .object({
      url: z.string().describe('Where this API can be reached from anywhere, with the API token.'),
      status: z.enum(TUNNEL_STATES).describe("The state of the agent's own domain, as of a tunnel."),
      since: z.iso.datetime().describe('When it changed to this state.'),
      last_error: LastError.describe('Why the last attempt failed; null while it is online.'),
    })
    .nullable()
    .describe("The agent's own domain; null without one."),
  storage: z
    .object({ last_error: LastError.describe('Why the last change of a tunnel could not be saved; null when it was.') })
    .describe('Whether changes reach the disk.'),
  clock: z
    .object({
      source: z
        .enum(['system', 'gateway'])
        .describe(
          'Whose time the agent uses. `gateway`: the clock of this machine is wrong, and the gateway has proved the time.',
        ),
      system_ahead_seconds: z
        .int()
        .nullable()
        .describe(
          'By how much the clock of this machine is ahead of the proved time, negative: behind; null while the agent uses it.',
        ),
      problem: z
        .string()
        .nullable()
        .describe(
          'Why the gateway has proved no time, though the clock of this machine seems to be wrong; null without.',
        ),
    })
    .describe('The time as the agent uses it: for certificates, sessions of the page, and histories.'),
  data_budget: z
    .object({
      level: z
        .enum(['normal', 'warned', 'paused', 'spent'])
        .describe('warned: 80 % is used; paused: 95 %, so that tunnels answer 503; spent: the device is offline.'),
      used_bytes: Count.describe('What the device has sent and received in this period, as counted.'),
      limit_bytes: Count.describe('What it may send and receive.'),
      since: z.iso.datetime().describe('When the period began.'),
      until: z.iso.datetime().describe('When it ends.'),
      next_at: z.iso.datetime().nullable().describe('When the device may go online again; null while it may be.'),
      tunnels: z
        .array(z.object({ url: z.string().describe('Its public URL.'), bytes: Count.describe('With headers.') }))
        .describe('What tunnels have used of it, with their share of headers: the 20 that have used most.'),
    })
    .nullable()
    .describe('What the device may use of its SIM card; null without AGENT_DATA_BUDGET.'),
  addresses: z
    .record(z.string(), z.string().nullable())
    .describe('Addresses and files of the agent and its gateway by name, such as `api`; null: not known, or not open.'),
});
export type StatusReport = z.infer<typeof StatusReport>;

function presentRemoteApi({ url, status: { state, since, lastError } }: RemoteApi): StatusReport['remote_api'] {
  return { url, status: state, since: since.toISOString(), last_error: lastError };
}

function presentBudget(budget: BudgetState | null): StatusReport['data_budget'] {
  if (budget === null) return null;
  const { level, usedBytes, limitBytes, since, until, nextAt, tunnels } = budget;
  return {
    ...{ level, used_bytes: Math.round(usedBytes), limit_bytes: Math.round(limitBytes) },
    ...{ since: since.toISOString(), until: until.toISOString(), next_at: nextAt?.toISOString() ?? null },
    tunnels: tunnels.map(([url, bytes]) => ({ url, bytes: Math.round(bytes) })),
  };
}

export function presentStatus(source: Omit<HealthSource, 'metrics'>): StatusReport {
  const { version, uptime, session, tunnels, remoteApi, time, addresses } = source;
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
    clock: presentClock(time?.() ?? BY_SYSTEM),
    data_budget: presentBudget(source.budget?.() ?? null),
    addresses: addresses(),
  };
}

const BY_SYSTEM: ClockReport = { source: 'system', aheadMs: null, problem: null };

function presentClock({ source, aheadMs, problem }: ClockReport): StatusReport['clock'] {
  const system_ahead_seconds = aheadMs === null ? null : Math.round(aheadMs / 1000);
  return { source, system_ahead_seconds, problem };
}
