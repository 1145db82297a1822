import { once } from 'node:events';
import { createServer, get, type IncomingMessage } from 'node:http';
import { describe, expect, it } from 'vitest';
import { LiveFeed } from '../../../../src/agent/api/page/live-feed.ts';
import type { FeedChange, FeedSnapshot } from '../../../../src/agent/api/page/page-routes.ts';
import { LogTail } from '../../../../src/lib/log/log-tail.ts';
import { serving } from '../../../support/loopback.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { setUpTunnels, tunnelRequest } from '../../../support/tunnel-set-up.ts';
import { until } from '../../../support/until.ts';

async function setUp() {
  const { tunnels, connector } = await setUpTunnels();
  const clock = new SteeredClock();
  const logTail = new LogTail();
  let checks = 0;
  const feed = new LiveFeed({
    name: 'cabinet-7',
    tunnels,
    session: () => connector.status,
    remoteApi: null,
    upstreams: { look: () => {}, problem: null },
    version: '1.2.3',
    uptime: () => clock.now() / 1000,
    addresses: () => ({}),
    clock,
    logTail,
    monitor: {
      refresh: async () => {
        checks++;
      },
    },
  });
  const server = createServer((_req, res) => {
    feed.open(Object.assign(res, { locals: {} }) as never);
  });
  const port = await serving(server);
  /** Opens a page, and collects the events that it receives. */
  const open = async () => {
    const request = get({ port, host: '127.0.0.1' });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let text = '';
    response.setEncoding('utf8').on('data', (piece) => {
      text += piece;
    });
    response.on('error', () => {});
    const events = () =>
      text
        .split('\n\n')
        .slice(0, -1)
        .map((event) => {
          const [, name = '', data = ''] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
          return { name, data: JSON.parse(data) };
        });
    await until(() => events().length > 0, 'the snapshot');
    return { events, close: () => request.destroy(), ended: () => response.closed };
  };
  return { tunnels, connector, clock, logTail, feed, open, checks: () => checks };
}

describe('the live feed', () => {
  it('sends everything first, and then only what changes', async () => {
    const { tunnels, clock, logTail, open, checks } = await setUp();
    const { tunnel } = await tunnels.create(tunnelRequest({ domain: 'first.localhost' }));
    const page = await open();
    const snapshot: FeedSnapshot = page.events()[0]?.data;
    expect(snapshot).toMatchObject({
      status: { version: '1.2.3', session: { state: 'online' } },
      tunnels: [
        {
          id: tunnel.id,
          url: 'https://first.localhost:8443',
          status: 'online',
          own_policy: false,
          access: ['everyone'],
        },
      ],
      log: [],
    });
    expect(checks()).toBe(1);
    await clock.advance(1_000);
    const second = await tunnels.create(tunnelRequest({ domain: 'second.localhost' }));
    logTail.write('{"level":"warn","time":"2026-11-22T12:00:00.000Z","msg":"session lost","reason":"timeout"}\n');
    await clock.advance(1_000);
    await until(() => page.events().length > 1, 'the change');
    const change: FeedChange = page.events()[1]?.data;
    expect(change.tunnels).toMatchObject([{ id: second.tunnel.id }]);
    // Policies may contain secrets, and checks without a finding are no news.
    expect(JSON.stringify([snapshot, change])).not.toMatch(/"policy"|checked_at/);
    expect(change.log).toMatchObject([{ level: 'warn', msg: 'session lost', fields: { reason: 'timeout' } }]);
    await tunnels.remove(tunnels.find('first'));
    await clock.advance(1_000);
    await until(() => page.events().length > 2, 'the removal');
    expect(page.events()[2]?.data).toMatchObject({ removed: [tunnel.id], status: { tunnels: { total: 1 } } });
  });

  it('sends of a tunnel what has changed, and whole again to a page that reconnects', async () => {
    const { tunnels, connector, clock, open } = await setUp();
    const { tunnel } = await tunnels.create(tunnelRequest({ domain: 'first.localhost' }));
    await tunnels.create(tunnelRequest({ domain: 'other.localhost' }));
    const page = await open();
    connector.bound.get(tunnel.url)?.end({ code: null, message: 'closed by the gateway' });
    await clock.advance(1_000);
    await until(() => page.events().length > 1, 'the change');
    const [change = {}] = page.events()[1]?.data.tunnels ?? [];
    expect(change).toMatchObject({ id: tunnel.id, status: expect.not.stringMatching('online') });
    expect(Object.keys(change)).not.toContain('url');
    const again = await open();
    expect(again.events()[0]?.data.tunnels).toMatchObject([{ id: tunnel.id, url: tunnel.url }, {}]);
  });

  it('sends null for an option of a tunnel that was reset', async () => {
    const { tunnels, clock, open } = await setUp();
    const view = await tunnels.create(tunnelRequest({ domain: 'first.localhost', max_connections: 2 }));
    const page = await open();
    await tunnels.changes.change(view, { max_connections: undefined });
    await clock.advance(1_000);
    await until(() => page.events().length > 1, 'the change');
    expect(page.events()[1]?.data.tunnels).toMatchObject([{ id: view.tunnel.id, max_connections: null }]);
  });

  it('sends an event after ten quiet seconds', async () => {
    const { clock, open } = await setUp();
    const page = await open();
    for (let second = 0; second < 12; second++) await clock.advance(1_000);
    await until(() => page.events().length > 1, 'the event');
    expect(page.events()[1]).toEqual({ name: 'alive', data: {} });
  });

  it('runs no timer before the first page opens and after the last one closes', async () => {
    const { clock, open } = await setUp();
    expect(clock.sleeping).toBe(0);
    const [first, second] = [await open(), await open()];
    expect(clock.sleeping).toBe(1);
    first.close();
    second.close();
    await until(() => clock.sleeping === 0, 'the end of the timer');
  });

  it('ends when the agent stops, so that the stop is not delayed', async () => {
    const { clock, feed, open } = await setUp();
    const page = await open();
    feed.stop();
    await until(() => page.ended(), 'the end of the stream');
    expect(clock.sleeping).toBe(0);
  });
});
