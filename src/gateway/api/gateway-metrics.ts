import { Counter, Gauge, Registry } from 'prom-client';
import { addProcessMetrics } from '../../lib/process/process-metrics.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import { CONNECTION_KINDS, type TrafficCounters } from '../metrics/traffic-counters.ts';
import { CERTIFICATE_STATES } from '../store/managed-domains.ts';
import type { Store } from '../store/store.ts';
import type { Handler } from './handler.ts';

export interface MetricsSource {
  live: LiveView;
  counters: TrafficCounters;
  store: Store;
}

const PROTOCOLS = ['http', 'https', 'tcp', 'tls'];

/** The gateway's Prometheus metrics. Values are read from their sources on each scrape. */
export class GatewayMetrics {
  readonly registry = new Registry();
  readonly #requests = new Counter({
    name: 'device_agent_gateway_api_requests_total',
    help: 'Requests to the management API.',
    labelNames: ['method', 'route', 'status'] as const,
    registers: [this.registry],
  });

  constructor({ live, counters, store }: MetricsSource) {
    addProcessMetrics(this.registry);
    this.#addOnline(live);
    this.#addTraffic(counters);
    this.#addRefusals(counters);
    this.#addCertificates(store);
  }

  /** Counts every request. Routes are labelled by their pattern, so that clients cannot create labels. */
  readonly observe: Handler = (req, res, next) => {
    res.on('close', () => {
      const found: { path: string } | undefined = req.route;
      // A request without a route may have any method.
      const [method, route] = found ? [req.method, found.path] : ['OTHER', 'none'];
      this.#requests.inc({ method, route, status: res.writableFinished ? res.statusCode : 'aborted' });
    });
    next();
  };

  #addOnline(live: LiveView): void {
    const registers = [this.registry];
    new Gauge({
      name: 'device_agent_gateway_sessions',
      help: 'Agent sessions online.',
      registers,
      collect() {
        this.set(live.sessions().length);
      },
    });
    new Gauge({
      name: 'device_agent_gateway_endpoints',
      help: 'Endpoints online by protocol, including those of TLS edges.',
      labelNames: ['protocol'],
      registers,
      collect() {
        for (const protocol of PROTOCOLS) this.set({ protocol }, 0);
        for (const { proto } of live.endpoints()) this.inc({ protocol: proto });
      },
    });
    new Gauge({
      name: 'device_agent_gateway_labeled_tunnels',
      help: 'Labelled tunnels online.',
      registers,
      collect() {
        this.set(live.tunnels().filter(({ labels }) => labels !== null).length);
      },
    });
  }

  #addTraffic(counters: TrafficCounters): void {
    const registers = [this.registry];
    new Gauge({
      name: 'device_agent_gateway_connections',
      help: 'Open connections of clients, by kind.',
      labelNames: ['kind'],
      registers,
      collect() {
        for (const kind of CONNECTION_KINDS) this.set({ kind }, counters.connections[kind]);
      },
    });
    new Counter({
      name: 'device_agent_gateway_responses_total',
      help: 'Responses to HTTP requests of clients by status class, without the management API.',
      labelNames: ['class'],
      registers,
      collect() {
        this.reset();
        for (const digit of [1, 2, 3, 4, 5]) this.inc({ class: `${digit}xx` }, counters.responses[digit]);
      },
    });
    this.#addCount(
      'device_agent_gateway_policy_refusals_total',
      'HTTP requests of clients refused by a policy.',
      () => {
        return counters.refusedByPolicy;
      },
    );
    this.#addCount(
      'device_agent_gateway_upstream_failures_total',
      'HTTP requests of clients that got no complete response from the upstream.',
      () => counters.upstreamFailures,
    );
    this.#addCount(
      'device_agent_gateway_stalled_seconds_total',
      'Time for which the event loop stood still, in stalls of a second and more.',
      () => counters.stalledMs / 1000,
    );
  }

  #addRefusals(counters: TrafficCounters): void {
    this.#addCodes('device_agent_gateway_binds_refused_total', 'Endpoints refused to agents.', counters.bindsRefused);
    this.#addCodes('device_agent_gateway_sessions_refused_total', 'Sessions refused.', counters.sessionsRefused);
    this.#addCount(
      'device_agent_gateway_sessions_exhausted_total',
      'Sessions ended because upstreams kept their connections open after clients had left.',
      () => counters.sessionsExhausted,
    );
  }

  #addCount(name: string, help: string, count: () => number): void {
    new Counter({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.reset();
        this.inc(count());
      },
    });
  }

  #addCodes(name: string, help: string, counts: ReadonlyMap<string, number>): void {
    new Counter({
      name,
      help: `${help.slice(0, -1)} by error code.`,
      labelNames: ['code'],
      registers: [this.registry],
      collect() {
        this.reset();
        for (const [code, count] of counts) this.inc({ code }, count);
      },
    });
  }

  #addCertificates({ reservedDomains, ownDomains }: Store): void {
    const registers = [this.registry];
    const tables = [reservedDomains, ownDomains];
    new Gauge({
      name: 'device_agent_gateway_domains',
      help: "Reserved domains and the gateway's own names, by the state of their certificate.",
      labelNames: ['certificate'],
      registers,
      collect() {
        for (const state of CERTIFICATE_STATES) this.set({ certificate: state }, 0);
        for (const { state, names } of tables.flatMap((table) => table.certificateStates())) {
          this.inc({ certificate: state }, names);
        }
      },
    });
    new Gauge({
      name: 'device_agent_gateway_certificate_expiry_seconds',
      help: 'Seconds until the next certificate of these names expires; absent without certificates.',
      registers,
      collect() {
        this.remove();
        const ends = tables.flatMap((table) => Date.parse(table.nearestExpiry() ?? '') || []);
        if (ends.length > 0) this.set((Math.min(...ends) - Date.now()) / 1000);
      },
    });
  }
}
