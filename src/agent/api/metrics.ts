import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { addProcessMetrics } from '../../lib/process/process-metrics.ts';
import { SESSION_STATES, type SessionStatus } from '../connectors/connector.ts';
import type { BudgetState } from '../connectors/data-budget.ts';
import { SHOWN_STATES, type ShownState, TUNNEL_STATES, type TunnelState } from '../tunnels/tunnel.ts';

export interface MetricsSource {
  tunnelCounts: () => Readonly<Record<ShownState, number>>;
  /** Of all tunnels whose connections pass through the agent. */
  traffic: () => Readonly<Record<'requests' | 'bytesIn' | 'bytesOut', number>>;
  session: () => SessionStatus;
  /** The state of the agent's own domain; null without one. */
  remoteApi: () => TunnelState | null;
  /** Null without AGENT_DATA_BUDGET. */
  budget?: () => BudgetState | null;
  /** Connections that upstreams keep open after clients have left. */
  abandoned: () => number;
}

const SECONDS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 30];

export class Metrics {
  readonly registry = new Registry();
  readonly #requests = new Counter({
    name: 'device_agent_api_requests_total',
    help: 'Requests to the agent API.',
    labelNames: ['side', 'method', 'route', 'status'] as const,
    registers: [this.registry],
  });
  readonly #durations = new Histogram({
    name: 'device_agent_api_request_duration_seconds',
    help: 'Time from a request to the end of its answer.',
    labelNames: ['side', 'method', 'route'] as const,
    buckets: SECONDS,
    registers: [this.registry],
  });

  constructor(source: MetricsSource) {
    addProcessMetrics(this.registry);
    const registers = [this.registry];
    new Gauge({
      name: 'device_agent_tunnels',
      help: 'Tunnels by state; degraded: online, but the upstream accepts no connections, or hangs.',
      labelNames: ['state'],
      registers,
      collect() {
        const counts = source.tunnelCounts();
        for (const state of SHOWN_STATES) this.set({ state }, counts[state]);
      },
    });
    new Gauge({
      name: 'device_agent_abandoned_connections',
      help: 'Connections of the SDK that upstreams keep open after clients have left.',
      registers,
      collect() {
        this.set(source.abandoned());
      },
    });
    this.#countTraffic(source);
    new Gauge({
      name: 'device_agent_session_state',
      help: '1 for the current state of the session with the gateway.',
      labelNames: ['state'],
      registers,
      collect() {
        const now = source.session().state;
        for (const state of SESSION_STATES) this.set({ state }, state === now ? 1 : 0);
      },
    });
    new Gauge({
      name: 'device_agent_remote_api_state',
      help: "1 for the current state of the agent's own domain; absent without AGENT_DOMAIN.",
      labelNames: ['state'],
      registers,
      collect() {
        const now = source.remoteApi();
        if (now === null) return this.reset();
        for (const state of TUNNEL_STATES) this.set({ state }, state === now ? 1 : 0);
      },
    });
    new Gauge({
      name: 'device_agent_data_budget_bytes',
      help: 'Data on the way to the gateway in this period: used, as counted, and the limit; absent without AGENT_DATA_BUDGET.',
      labelNames: ['kind'],
      registers,
      collect() {
        const state = source.budget?.() ?? null;
        if (state === null) return this.reset();
        this.set({ kind: 'used' }, state.usedBytes);
        this.set({ kind: 'limit' }, state.limitBytes);
      },
    });
    new Counter({
      name: 'device_agent_session_reconnects_total',
      help: 'Sessions established after the first one.',
      registers,
      collect() {
        this.reset();
        this.inc(source.session().reconnects);
      },
    });
  }

  /** Totals of all tunnels: labels for each would grow without limit. */
  #countTraffic({ traffic }: MetricsSource): void {
    new Counter({
      name: 'device_agent_tunnel_requests_total',
      help: 'HTTP requests of tunnels, and connections of other protocols, as far as they pass through the agent.',
      registers: [this.registry],
      collect() {
        this.reset();
        this.inc(traffic().requests);
      },
    });
    new Counter({
      name: 'device_agent_tunnel_bytes_total',
      help: 'Bytes of tunnels by direction (in: from clients), as far as they pass through the agent.',
      labelNames: ['direction'],
      registers: [this.registry],
      collect() {
        const { bytesIn, bytesOut } = traffic();
        this.reset();
        this.inc({ direction: 'in' }, bytesIn);
        this.inc({ direction: 'out' }, bytesOut);
      },
    });
  }

  count(labels: Record<'side' | 'method' | 'route', string>, status: string, seconds: number): void {
    this.#durations.observe(labels, seconds);
    this.#requests.inc({ ...labels, status });
  }
}
