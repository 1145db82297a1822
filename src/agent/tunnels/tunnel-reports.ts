import { parseUpstream } from '../../lib/network/upstream-address.ts';
import { beginsWithHttp1 } from '../connectors/connector.ts';
import type { Traffic, TrafficCounters } from '../upstreams/traffic-counters.ts';
import {
  type CheckedUpstream,
  isDown,
  UNKNOWN,
  type UpstreamHealth,
  type UpstreamHealths,
  type UpstreamStatus,
} from '../upstreams/upstream-health.ts';
import { tlsOf } from '../upstreams/upstream-tls.ts';
import type { ShownState, Tunnel, TunnelStatus } from './tunnel.ts';
import type { TunnelView } from './tunnel-list.ts';

interface Watched {
  traffic: TrafficCounters;
  /** Null: this version does not support what is stored. */
  upstream: CheckedUpstream | null;
}

/** Of the URL of a tunnel. */
interface WhatGatewaySays {
  /** What it has counted there; null: unknown. */
  trafficAt(url: string): Traffic | null;
  /** What it takes for mistakes in the policy there. */
  warningsAt(url: string): readonly string[];
}

/** What people want to know of tunnels besides their endpoints: upstreams and traffic. */
export class TunnelReports {
  readonly #watched = new Map<string, Watched>();

  constructor(
    private readonly healths: UpstreamHealths,
    private readonly gateway: WhatGatewaySays,
  ) {}

  /** From now on, the tunnel's upstream is checked when it has no traffic. */
  watch(tunnel: Tunnel, traffic: TrafficCounters): void {
    const upstream = upstreamOf(tunnel);
    if (upstream) this.healths.hold(upstream);
    this.#watched.set(tunnel.id, { traffic, upstream });
  }

  unwatch(tunnel: Tunnel): void {
    const upstream = this.#watched.get(tunnel.id)?.upstream;
    if (upstream) this.healths.release(upstream);
    this.#watched.delete(tunnel.id);
  }

  /** Checks the tunnel's new upstream from now on. */
  changed(tunnel: Tunnel): void {
    const traffic = this.#watched.get(tunnel.id)?.traffic;
    if (!traffic) return;
    this.unwatch(tunnel);
    this.watch(tunnel, traffic);
  }

  upstream(view: TunnelView): UpstreamStatus {
    return this.health(view)?.status ?? UNKNOWN;
  }

  /** Null for an upstream that this version does not support. */
  health({ tunnel }: TunnelView): UpstreamHealth | null {
    const upstream = this.#watched.get(tunnel.id)?.upstream;
    return upstream ? this.healths.find(upstream) : null;
  }

  /** What the person who has just created the tunnel should know of its upstream; null: nothing. */
  notice(view: TunnelView): string | null {
    const at = view.tunnel.forwards_to;
    const { state, reason } = this.upstream(view);
    if (state === 'refused') return `nothing listens at ${at}; clients get errors until something does`;
    if (state === 'unreachable') return `${at} does not answer (${reason}); clients get errors until it does`;
    if (state === 'wrong_protocol' || state === 'tls_failed') return `${at} ${reason}`;
    if (state === 'hangs') return `${at} hangs: ${reason}; restart it`;
    const path = this.health(view)?.exposedPath ?? null;
    if (path === null) return null;
    return `the upstream serves this agent's data folder with its secrets at ${path}; serve another folder`;
  }

  /** Null when connections bypass the agent, and the gateway does not tell. */
  traffic({ tunnel }: TunnelView): Traffic | null {
    return this.#watched.get(tunnel.id)?.traffic.traffic ?? this.gateway.trafficAt(tunnel.url);
  }

  /** What the gateway takes for mistakes in the tunnel's policy, which is valid. */
  policyWarnings({ tunnel, endpoint }: TunnelView): readonly string[] {
    return endpoint === null ? [] : (endpoint.policyWarnings ?? this.gateway.warningsAt(tunnel.url));
  }

  /** What counts the traffic of a tunnel; null when there is no such tunnel. */
  counters(id: string): TrafficCounters | null {
    return this.#watched.get(id)?.traffic ?? null;
  }

  /** The tunnel's state; `degraded` when it is online, but its upstream is not. */
  status(view: TunnelView): TunnelStatus<ShownState> {
    const { state, since, lastError } = view.status;
    const upstream = this.upstream(view);
    if (state !== 'online' || !isDown(upstream)) return { state, since, lastError };
    const message = `upstream ${view.tunnel.forwards_to} ${problemOf(upstream)}`;
    return { state: 'degraded', since: upstream.since ?? since, lastError: { code: null, message } };
  }

  counts(views: Iterable<TunnelView>): Record<ShownState, number> {
    const counts = { online: 0, degraded: 0, connecting: 0, offline: 0, failed: 0 };
    for (const view of views) counts[this.status(view).state]++;
    return counts;
  }
}

function problemOf({ state, reason }: UpstreamStatus): string {
  if (state === 'wrong_protocol' || state === 'tls_failed') return String(reason);
  if (state === 'hangs') return `hangs: ${reason}`;
  return `${state === 'refused' ? 'refuses connections' : 'is unreachable'}: ${reason}`;
}

function upstreamOf(tunnel: Tunnel): CheckedUpstream | null {
  try {
    const upstream = parseUpstream(tunnel.forwards_to);
    return { upstream, isHttp: beginsWithHttp1(tunnel), tls: tlsOf(upstream, tunnel) };
  } catch {
    return null;
  }
}
