import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { AbandonedConnections } from '../../../src/agent/upstreams/abandoned-connections.ts';
import { UpstreamHealths } from '../../../src/agent/upstreams/upstream-health.ts';
import { parseUpstream } from '../../../src/lib/network/upstream-address.ts';
import { ownConnections } from '../../../src/lib/process/own-connections.ts';
import { freePort, listening, serving } from '../../support/loopback.ts';
import { NO_LINUX, unless } from '../../support/requirements.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { until } from '../../support/until.ts';

/** An upstream that never ends a connection, and connections to it whose client has left. */
async function hungUpstream() {
  const theirs: Socket[] = [];
  const ours: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => void theirs.push(socket.on('error', () => {})));
  const port = await listening(server);
  const isPort = (one: number) => one === port;
  const end = () => {
    for (const socket of [...ours, ...theirs]) socket.destroy();
  };
  onTestFinished(() => {
    end();
    server.close();
  });
  const abandon = async (count: number) => {
    for (let made = 0; made < count; made++) ours.push(connect({ port, host: '127.0.0.1', allowHalfOpen: true }).end());
    await until(() => ownConnections('halfClosed', isPort).length === ours.length, 'half-closed connections');
  };
  return { port, abandon, end };
}

it(
  'names an upstream that keeps connections open after clients have left, until it closes them',
  unless(NO_LINUX),
  async () => {
    const { port, abandon, end } = await hungUpstream();
    const { log, lines } = recordingLog();
    const clock = { now: 0 };
    const healths = new UpstreamHealths(log, () => clock.now);
    const health = healths.hold({ upstream: parseUpstream(port), isHttp: true });
    health.answered();
    const hung: unknown[] = [];
    const abandoned = new AbandonedConnections(
      { log },
      healths,
      (one) => void hung.push(one),
      () => clock.now,
    );
    const look = (ms: number) => {
      clock.now += ms;
      abandoned.look();
      return [health.status.state, abandoned.count, abandoned.problem !== null, health.needsRelay];
    };
    await abandon(40);
    // The agent owns what it has connected itself.
    expect([look(0), look(10_000)].map(([, count]) => count)).toEqual([0, 0]);
    health.isDirect = true;
    // An upstream may take a moment for its end.
    expect([look(0), look(9_000)]).toEqual(Array(2).fill(['answers', 0, false, false]));
    expect(look(1_000)).toEqual(['hangs', 40, false, true]);
    expect(health.status.reason).toBe('40 connections that clients have left are still open');
    await abandon(220);
    expect(look(0)).toEqual(['hangs', 40, false, true]);
    // So many of them are a problem soon.
    expect(look(1_000)).toEqual(['hangs', 260, true, true]);
    expect(abandoned.problem).toContain('260 connections');
    // They take no place of the next session.
    abandoned.sessionStarted();
    expect(look(1_000)).toEqual(['hangs', 260, false, true]);
    end();
    await until(() => ownConnections('halfClosed', (one) => one === port).length === 0, 'the end');
    // The agent closes them in time, because the upstream does not.
    health.gaveUp();
    expect(look(29_000)).toEqual(['hangs', 0, false, true]);
    expect(health.status.reason).toContain('until the agent closes them');
    expect(look(1_000)).toEqual(['answers', 0, false, true]);
    expect(hung).toEqual([health]);
    expect(lines.map(({ level, msg }) => [level, msg])).toEqual([
      [40, 'upstream keeps connections open that clients have left'],
      [30, 'upstream has closed its abandoned connections'],
    ]);
  },
);

it('tells whether the SDK is connected to an upstream', unless(NO_LINUX), async () => {
  const server = createServer((socket) => void socket.on('error', () => {}));
  const port = await serving(server);
  const { log } = recordingLog();
  const healths = new UpstreamHealths(log);
  const [used, unused] = [parseUpstream(port), parseUpstream(await freePort())].map((upstream) =>
    healths.hold({ upstream, isHttp: true }),
  );
  if (!used || !unused) throw new Error('no upstreams');
  const connections = new AbandonedConnections({ log }, healths, () => {});
  const client = connect(port, '127.0.0.1');
  onTestFinished(() => void client.destroy());
  await once(client, 'connect');
  const look = () => [used, unused].map(connections.lookForClients());
  // The agent counts its own.
  expect(look()).toEqual([false, false]);
  used.isDirect = true;
  unused.isDirect = true;
  expect(look()).toEqual([true, false]);
  client.destroy();
  await until(() => look()[0] === false, 'the end of the connection');
});
