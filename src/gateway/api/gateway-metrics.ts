import { Counter, Gauge, Registry } from 'prom-client';
import { addProcessMetrics } from '../../lib/process/process-metrics.ts';
import { CONDITION_IDS } from '../../management/condition-kinds.ts';
import { BUDGET_STATES } from '../../management/resources/device.ts';
import type { Condition } from '../conditions/conditions.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import { CONNECTION_KINDS, type EdgeCounters, WAIT_OUTCOMES } from '../metrics/edge-counters.ts';
import type { PublicProbes } from '../probes/public-probes.ts';
import { CERTIFICATE_STATES } from '../store/domains.ts';
import type { Store } from '../store/store.ts';
import type { Handler } from './handler.ts';

interface MetricsSource {
  live: Pick<LiveView, 'counts'>;
  counters: EdgeCounters;
  store: Store;
  conditions: () => Promise<readonly Condition[]>;
  /** Null, or left out: the gateway asks no endpoints as clients do. */
  probes?: Pick<PublicProbes, 'counts'> | null;
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

  constructor({ live, counters, store, conditions, probes = null }: MetricsSource) {
    addProcessMetrics(this.registry);
    this.#addOnline(live);
    this.#addBudgets(store);
    this.#addTraffic(counters);
    this.#addRefusals(counters);
    this.#addCertificates(store);
    this.#addConditions(conditions);
    this.#addProbes(probes);
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

  #addOnline(live: MetricsSource['live']): void {
    this.#addGauge('device_agent_gateway_sessions', 'Agent sessions online.', [], (gauge) =>
      gauge.set(live.counts().sessions),
    );
    const help = 'Endpoints online by protocol, including those of TLS edges.';
    this.#addGauge('device_agent_gateway_endpoints', help, ['protocol'], (gauge) => {
      for (const protocol of PROTOCOLS) gauge.set({ protocol }, 0);
      for (const [protocol, count] of live.counts().endpoints) gauge.set({ protocol }, count);
    });
    this.#addGauge('device_agent_gateway_labeled_tunnels', 'Labelled tunnels online.', [], (gauge) =>
      gauge.set(live.counts().labelled),
    );
  }

  #addBudgets({ devices }: Store): void {
    const help = 'Devices with a data budget, by what they have used of it; away: offline by plan.';
    this.#addGauge('device_agent_gateway_data_budgets', help, ['state'], (gauge) => {
      for (const state of BUDGET_STATES) gauge.set({ state }, 0);
      for (const { state, devices: count } of devices.budgetStates()) gauge.set({ state }, count);
    });
  }

  #addTraffic(counters: EdgeCounters): void {
    const open = 'Open connections of clients, by kind.';
    this.#addGauge('device_agent_gateway_connections', open, ['kind'], (gauge) => {
      for (const kind of CONNECTION_KINDS) gauge.set({ kind }, counters.connections[kind]);
    });
    const responses = 'Responses to HTTP requests of clients by status class, without the management API.';
    this.#addCounter('device_agent_gateway_responses_total', responses, ['class'], (counter) => {
      for (const digit of [1, 2, 3, 4, 5]) counter.inc({ class: `${digit}xx` }, counters.responses[digit]);
    });
    const waiting = 'Requests and connections that wait for an agent that was lost a moment ago.';
    this.#addGauge('device_agent_gateway_waiting', waiting, [], (gauge) => gauge.set(counters.waiting));
    const waits = 'Requests and connections that have waited for a lost agent, by outcome.';
    this.#addCounter('device_agent_gateway_waits_total', waits, ['outcome'], (counter) => {
      for (const outcome of WAIT_OUTCOMES) counter.inc({ outcome }, counters.waits[outcome]);
    });
    const refusals = 'HTTP requests of clients refused by a policy.';
    this.#addCounter('device_agent_gateway_policy_refusals_total', refusals, [], (counter) =>
      counter.inc(counters.refusedByPolicy),
    );
    const failures = 'HTTP requests of clients that got no complete response from the upstream.';
    this.#addCounter('device_agent_gateway_upstream_failures_total', failures, [], (counter) =>
      counter.inc(counters.upstreamFailures),
    );
    const stalls = 'Time for which the event loop stood still, in stalls of a second and more.';
    this.#addCounter('device_agent_gateway_stalled_seconds_total', stalls, [], (counter) =>
      counter.inc(counters.stalledMs / 1000),
    );
  }

  #addRefusals(counters: EdgeCounters): void {
    const addCodes = (name: string, help: string, counts: ReadonlyMap<string, number>) =>
      this.#addCounter(name, help, ['code'], (counter) => {
        for (const [code, count] of counts) counter.inc({ code }, count);
      });
    addCodes(
      'device_agent_gateway_binds_refused_total',
      'Endpoints refused to agents by error code.',
      counters.bindsRefused,
    );
    addCodes(
      'device_agent_gateway_sessions_refused_total',
      'Sessions refused by error code.',
      counters.sessionsRefused,
    );
    const exhausted = 'Sessions ended because upstreams kept their connections open after clients had left.';
    this.#addCounter('device_agent_gateway_sessions_exhausted_total', exhausted, [], (counter) =>
      counter.inc(counters.sessionsExhausted),
    );
  }

  #addCertificates({ reservedDomains, ownDomains }: Store): void {
    const tables = [reservedDomains, ownDomains];
    const domains = "Reserved domains and the gateway's own names, by the state of their certificate.";
    this.#addGauge('device_agent_gateway_domains', domains, ['certificate'], (gauge) => {
      for (const state of CERTIFICATE_STATES) gauge.set({ certificate: state }, 0);
      for (const { state, names } of tables.flatMap((table) => table.certificateStates())) {
        gauge.inc({ certificate: state }, names);
      }
    });
    const expiry = 'Seconds until the next certificate of these names expires; absent without certificates.';
    this.#addGauge('device_agent_gateway_certificate_expiry_seconds', expiry, [], (gauge) => {
      gauge.remove();
      const ends = tables.flatMap((table) => Date.parse(table.nearestExpiry() ?? '') || []);
      if (ends.length > 0) gauge.set((Math.min(...ends) - Date.now()) / 1000);
    });
  }

  #addProbes(probes: Pick<PublicProbes, 'counts'> | null): void {
    const help = 'Endpoints that this gateway asks as clients do, by the stage that broke; none: clients reach them.';
    this.#addGauge('device_agent_gateway_probed_endpoints', help, ['stage'], (gauge) => {
      for (const [stage, count] of probes?.counts() ?? []) gauge.set({ stage }, count);
    });
  }

  #addConditions(conditions: MetricsSource['conditions']): void {
    const help = '1 while something is wrong with the gateway or behind it, by condition.';
    this.#addGauge('device_agent_gateway_condition', help, ['condition'], async (gauge) => {
      const present = new Set((await conditions()).map(({ id }) => id));
      for (const condition of CONDITION_IDS) gauge.set({ condition }, present.has(condition) ? 1 : 0);
    });
  }

  #addGauge(name: string, help: string, labelNames: string[], read: (gauge: Gauge) => void | Promise<void>): void {
    const { registry } = this;
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        return read(this);
      },
    });
  }

  /** Counted elsewhere: each scrape reads its whole value. */
  #addCounter(name: string, help: string, labelNames: string[], read: (counter: Counter) => void): void {
    const { registry } = this;
    new Counter({
      name,
      help,
      labelNames,
      registers: [registry],
      collect() {
        this.reset();
        read(this);
      },
    });
  }
}
