import { once } from 'node:events';
import net from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { connectUpstream } from '../../../src/agent/upstreams/connect-upstream.ts';
import { UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { UpstreamHealth, UpstreamHealths } from '../../../src/agent/upstreams/upstream-health.ts';
import { UpstreamMonitor } from '../../../src/agent/upstreams/upstream-monitor.ts';
import { parseUpstream, type Upstream } from '../../../src/lib/network/upstream-address.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';
import { FakeConnector } from '../../support/fake-connector.ts';
import { listening } from '../../support/loopback.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { until } from '../../support/until.ts';

const refused = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:8001'), { code: 'ECONNREFUSED' });

const tcp = (port: number) => ({ upstream: parseUpstream(port), isHttp: false });
const onlineConnector = () => {
  const connector = new FakeConnector();
  connector.goOnline();
  return connector;
};
const never = () => new Promise<never>(() => {});

it('an unreachable upstream is logged at once, every ten minutes while clients ask for it, and when it answers again', () => {
  const { log, lines } = recordingLog();
  let minutes = 0;
  const health = new UpstreamHealth(parseUpstream(8001), false, log, () => minutes * 60_000);
  health.answered();
  for (; minutes < 15; minutes++) health.failed(refused, true);
  for (; minutes < 60; minutes++) health.failed(refused, false);
  health.answered();
  health.answered();
  health.failed(new Error('no connection'), false);
  expect(lines.map(({ level, msg, times }) => [level, msg, times])).toEqual([
    [40, 'upstream unreachable', 1],
    [40, 'upstream unreachable', 10],
    [30, 'upstream reachable again', undefined],
    [40, 'upstream unreachable', undefined],
  ]);
});

it('an upstream is refused when nothing listens, and unreachable when it does not answer', () => {
  const health = new UpstreamHealth(parseUpstream(8001), false, recordingLog().log);
  expect(health.status).toMatchObject({ state: 'unknown', since: null });
  health.failed(new AggregateError([refused]), false);
  const { since } = health.status;
  expect(health.status).toMatchObject({ state: 'refused', reason: refused.message });
  health.failed(refused, true);
  expect(health.status.since).toBe(since);
  health.failed(new Error('connecting did not finish within 3 s'), false);
  expect(health.status.state).toBe('unreachable');
  health.answered();
  expect(health.status).toMatchObject({ state: 'answers', reason: null });
});

/** A monitor that counts its connections, of which none succeeds. */
function setUp(upstreams: number) {
  const clock = new SteeredClock();
  const healths = new UpstreamHealths(recordingLog().log, clock.now);
  const checked: Upstream[] = [];
  const connector = onlineConnector();
  for (let port = 1; port <= upstreams; port++) healths.hold(tcp(port));
  const connect = async (upstream: Upstream) => {
    checked.push(upstream);
    throw refused;
  };
  const monitor = new UpstreamMonitor({
    healths,
    connect: ({ upstream }) => connect(upstream),
    request: never,
    connector,
    relay: never,
    abandoned: { look() {}, lookForClients: () => () => false },
    clock,
  });
  monitor.start();
  onTestFinished(() => monitor.stop());
  return { clock, healths, checked, connector, monitor };
}

it('every upstream is checked once a minute, in four batches', async () => {
  const { clock, checked } = setUp(100);
  await clock.advance(15_000);
  expect(checked).toHaveLength(25);
  await clock.advance(45_000);
  expect(new Set(checked).size).toBe(100);
  await clock.advance(4 * 60_000);
  expect(checked).toHaveLength(500);
  // It wakes four times a minute, whatever the number of upstreams.
  expect(clock.delays).toHaveLength(21);
});

it('a single upstream is checked every 30 seconds, but not while its traffic shows how it is', async () => {
  const { clock, checked, healths } = setUp(1);
  await clock.advance(60_000);
  expect(checked).toHaveLength(2);
  for (let seconds = 0; seconds < 60; seconds += 10) {
    healths.values()[0]?.answered();
    await clock.advance(10_000);
  }
  expect(checked).toHaveLength(2);
});

it('nothing is checked without a session, or after the last tunnel is gone', async () => {
  const { clock, checked, healths, connector } = setUp(1);
  connector.goOffline();
  await clock.advance(300_000);
  connector.goOnline();
  healths.release(tcp(1));
  await clock.advance(300_000);
  expect(checked).toEqual([]);
});

it('refresh() checks what readers would see outdated, and an upstream that just started answers', async () => {
  const server = net.createServer((socket) => void socket.resume());
  const port = await listening(server);
  server.close();
  await once(server, 'close');
  const clock = new SteeredClock();
  const { log } = recordingLog();
  const healths = new UpstreamHealths(log, clock.now);
  const health = healths.hold(tcp(port));
  const options = { guard: new UpstreamGuard(parseUpstreamRules('loopback')), verifyTls: true, connectMs: 2_000 };
  const connect = (upstream: Upstream) => connectUpstream(upstream, options);
  const monitor = new UpstreamMonitor({
    healths,
    connect: ({ upstream }) => connect(upstream),
    request: never,
    connector: onlineConnector(),
    relay: never,
    abandoned: { look() {}, lookForClients: () => () => false },
    clock,
  });
  await monitor.refresh();
  expect(health.status.state).toBe('refused');
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  await monitor.refresh();
  expect(health.status.state).toBe('refused');
  await clock.advance(3_000);
  await monitor.refresh();
  await until(() => health.status.state === 'answers', 'the upstream answers');
});

it('the upstream of an http tunnel gets a request when it works again, and later only for a reader who sees a mismatch', async () => {
  const clock = new SteeredClock();
  const { log, lines } = recordingLog();
  const healths = new UpstreamHealths(log, clock.now);
  const health = healths.hold({ upstream: parseUpstream(1), isHttp: true });
  const findings = { problem: 'answers with SSH' as string | null, exposedPath: null };
  let [up, requests] = [true, 0];
  const monitor = new UpstreamMonitor({
    healths,
    connect: async () => {
      if (!up) throw refused;
      return new net.Socket();
    },
    request: async () => {
      requests++;
      return findings;
    },
    connector: onlineConnector(),
    relay: never,
    abandoned: { look() {}, lookForClients: () => () => false },
    clock,
  });
  monitor.start();
  onTestFinished(() => monitor.stop());
  await clock.advance(120_000);
  health.answered();
  expect(health.status).toMatchObject({ state: 'wrong_protocol', reason: 'answers with SSH' });
  expect(requests).toBe(1);
  findings.problem = null;
  await clock.advance(5_000);
  await monitor.refresh();
  expect(health.status.state).toBe('answers');
  up = false;
  await clock.advance(60_000);
  up = true;
  await clock.advance(120_000);
  expect(requests).toBe(3);
  expect(lines.map(({ msg }) => msg)).toEqual([
    'upstream speaks another protocol',
    'upstream reachable again',
    'upstream unreachable',
    'upstream reachable again',
  ]);
});

it('a response to a client outweighs a check, until the upstream fails; a 400 does not', () => {
  const { log } = recordingLog();
  const health = new UpstreamHealth(parseUpstream(8001), true, log);
  const closes = { problem: 'closes connections', exposedPath: null, isDoubtful: true };
  health.spoke(closes);
  expect([health.status.state, health.probes]).toEqual(['wrong_protocol', ['GET']]);
  health.heard(Buffer.from('HTTP/1.1 400 Bad Request\r\n'));
  health.heard(Buffer.from('SSH-2.0-OpenSSH_9.2\r\n'));
  expect(health.status.state).toBe('wrong_protocol');
  health.heard(Buffer.from('HTTP/1.0 404 Not Found\r\n'));
  expect(health.status.state).toBe('answers');
  health.spoke(closes);
  expect(health.status.state).toBe('answers');
  health.spoke({ problem: 'answers with TLS', exposedPath: null });
  expect(health.status.state).toBe('wrong_protocol');
  health.failed(refused, false);
  health.spoke(closes);
  expect(health.status.state).toBe('wrong_protocol');
});

it('a check begins with the request that the upstream answered before', () => {
  const health = new UpstreamHealth(parseUpstream(8001), true, recordingLog().log);
  expect(health.probes).toEqual(['OPTIONS', 'GET', 'HEAD']);
  health.spoke({ problem: null, exposedPath: null, probe: 'GET' });
  health.failed(refused, false);
  expect(health.probes).toEqual(['GET', 'OPTIONS', 'HEAD']);
});

it('the agent connects itself, once, where a check of an upstream of the SDK may be wrong', () => {
  const health = new UpstreamHealth(parseUpstream(8001), true, recordingLog().log);
  health.isDirect = true;
  expect(health.spoke({ problem: 'answers with SSH', exposedPath: null })).toBe(false);
  const closes = { problem: 'closes connections', exposedPath: null, isDoubtful: true };
  expect([health.spoke(closes), health.needsRelay, health.spoke(closes)]).toEqual([true, true, false]);
});

it('an upstream in use is not checked for two minutes, and works when it has no place for a check', async () => {
  const { clock, checked, healths } = setUp(1);
  const [health] = healths.values();
  if (!health) throw new Error('no upstream');
  health.answered();
  health.open = 1;
  await clock.advance(110_000);
  expect(checked).toHaveLength(0);
  await clock.advance(30_000);
  expect([checked.length, health.status.state]).toEqual([1, 'answers']);
  health.open = 0;
  await clock.advance(60_000);
  expect(health.status.state).toBe('refused');
});

it('an upstream that has just answered one client works when it refuses another one', () => {
  let seconds = 0;
  const health = new UpstreamHealth(parseUpstream(8001), true, recordingLog().log, () => seconds * 1000);
  health.answered();
  health.open = 1;
  health.heard(Buffer.from('HTTP/1.1 200 OK\r\n'));
  health.failed(refused, true);
  expect(health.status.state).toBe('answers');
  seconds = 60;
  health.failed(refused, true);
  expect(health.status.state).toBe('refused');
  health.heard(Buffer.from('HTTP/1.1 200 OK\r\n'));
  expect(health.status.state).toBe('answers');
});

it('refresh() does not wait for an upstream that never answers', async () => {
  const clock = new SteeredClock();
  const healths = new UpstreamHealths(recordingLog().log, clock.now);
  const health = healths.hold(tcp(1));
  const monitor = new UpstreamMonitor({
    healths,
    connect: never,
    request: never,
    connector: onlineConnector(),
    relay: never,
    abandoned: { look() {}, lookForClients: () => () => false },
    clock,
  });
  await monitor.refresh();
  expect(health.status.state).toBe('unknown');
});

it('a refused response is shown for a minute, whatever the upstream answers to the agent, and logged every ten minutes', () => {
  const { log, lines } = recordingLog();
  let seconds = 0;
  const health = new UpstreamHealth(parseUpstream(8001), true, log, () => seconds * 1_000);
  const proper = { problem: null, exposedPath: null };
  health.spoke(proper);
  for (; seconds < 11 * 60; seconds += 30) health.answerRefused('its status line has no status');
  health.answered();
  health.spoke(proper);
  health.spoke({ ...proper, problem: 'answers with SSH' });
  expect(health.status).toMatchObject({
    state: 'wrong_protocol',
    reason: 'sent an invalid HTTP response: its status line has no status',
  });
  expect(health.asksRequest(false)).toBe(true);
  seconds += 60;
  health.spoke(proper);
  expect(health.status).toMatchObject({ state: 'answers', reason: null });
  health.answerRefused('it has no status line');
  health.failed(refused, true);
  expect(health.status.state).toBe('refused');
  health.spoke(proper);
  expect(health.status.state).toBe('answers');
  expect(lines.map(({ msg, reason }) => [msg, reason])).toEqual([
    ['upstream sends invalid responses', 'its status line has no status'],
    ['upstream sends invalid responses', 'its status line has no status'],
    ['upstream unreachable', refused.message],
    ['upstream reachable again', undefined],
  ]);
});
