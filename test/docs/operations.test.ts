import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { Metrics } from '../../src/agent/api/metrics.ts';
import { TrafficTotals } from '../../src/agent/upstreams/traffic-counters.ts';
import { GatewayMetrics } from '../../src/gateway/api/gateway-metrics.ts';
import { EdgeCounters } from '../../src/gateway/metrics/edge-counters.ts';
import { openGatewayStore } from '../../src/gateway/store/open-gateway-store.ts';
import { nothingOnline } from '../support/nothing-online.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

const page = readFileSync('docs/operations.md', 'utf8');
const dataDir = sharedFolder();
const store = openGatewayStore({ dataDir, encryptionKey: null });
afterAll(() => {
  store.database.close();
});

const agent = new Metrics({
  remoteApi: () => 'failed',
  abandoned: () => 0,
  tunnelCounts: () => ({ connecting: 0, online: 0, degraded: 0, offline: 0, failed: 0 }),
  traffic: () => new TrafficTotals(),
  session: () => ({ state: 'online', since: new Date(), gateway: '', reconnects: 0, lastError: null }),
});
const gateway = new GatewayMetrics({
  live: nothingOnline,
  counters: new EdgeCounters(),
  store,
  conditions: async () => [],
});
const exported = [agent, gateway].flatMap(({ registry }) => registry.getMetricsAsArray());
/** What Prometheus adds to the metrics of a target. */
const OF_PROMETHEUS = ['up'];
const known = new Set([...OF_PROMETHEUS, ...exported.map(({ name }) => name)]);
const own = [...known].filter((name) => name.startsWith('device_agent_'));

/** The metrics that expressions of Prometheus select. */
function selected(expressions: readonly string[]): string[] {
  return expressions.flatMap((expression) =>
    [...expression.matchAll(/\b(?:device_agent|process|nodejs)_\w+|\bup\b/g)].map(([name]) =>
      name.replace(/_bucket$/, ''),
    ),
  );
}

const dashboards = readdirSync('packaging/grafana').map((file) => {
  const text = readFileSync(join('packaging/grafana', file), 'utf8');
  const board = JSON.parse(text) as { title: string; panels: { id: number; targets: { expr: string }[] }[] };
  return { file, ...board, expressions: board.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)) };
});

interface Rule {
  alert: string;
  expr: string;
  annotations: { summary: string; remedy: string };
}
const alerts = parse(readFileSync('packaging/prometheus/alerts.yml', 'utf8')) as { groups: { rules: Rule[] }[] };
const rules = alerts.groups.flatMap((group) => group.rules);

describe('the dashboards', () => {
  it.each(dashboards)('of $title shows metrics that there are', ({ expressions, panels }) => {
    expect(selected(expressions).length).toBeGreaterThanOrEqual(panels.length);
    expect(selected(expressions).filter((name) => !known.has(name))).toEqual([]);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  });

  it('show every metric of ours', () => {
    const shown = selected(dashboards.flatMap(({ expressions }) => expressions));
    expect(own.filter((name) => !shown.includes(name))).toEqual([]);
  });
});

describe('the alert rules', () => {
  it.each(rules)('$alert watches metrics that there are, and says what to do', ({ expr, annotations }) => {
    expect(selected([expr])).not.toEqual([]);
    expect(selected([expr]).filter((name) => !known.has(name))).toEqual([]);
    expect(annotations).toEqual({ summary: expect.stringMatching(/./), remedy: expect.stringMatching(/./) });
  });

  it('go by labels that the metrics have', () => {
    const labels = new Set(['job', 'instance', 'le', ...exported.flatMap((metric) => labelsOf(metric))]);
    const expressions = [...rules.map(({ expr }) => expr), ...dashboards.flatMap((each) => each.expressions)];
    const used = expressions.flatMap((text) =>
      [...text.matchAll(/[{,]\s*(\w+)\s*(?:=~|!=|=)/g)].map(([, name]) => name),
    );
    expect(used).toContain('state');
    expect(used.filter((name) => !labels.has(String(name)))).toEqual([]);
  });
});

function labelsOf(metric: object): string[] {
  return 'labelNames' in metric ? (metric.labelNames as string[]) : [];
}

describe('docs/operations.md', () => {
  it('lists every metric of ours, and no other', () => {
    const listed = [...page.matchAll(/^\| `(device_agent_\w+)`/gm)].map(([, name]) => name);
    expect(listed.toSorted()).toEqual(own.toSorted());
  });

  it('lists every alert, and no other', () => {
    const [, section = ''] = /^\| Alert \|[^\n]*\n([\s\S]*?)\n\n/m.exec(page) ?? [];
    const listed = [...section.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    expect(listed.toSorted()).toEqual(rules.map(({ alert }) => alert).toSorted());
  });
});
