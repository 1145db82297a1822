import { expect, it } from 'vitest';
import type { ConnectedEndpoint, RequestWatcher } from '../../../src/agent/connectors/connector.ts';
import { RequestWatches } from '../../../src/agent/tunnels/request-watches.ts';
import { SteeredClock } from '../../support/steered-clock.ts';

/** A tunnel whose endpoints report requests, and those who watch it. */
function setUp({ atUrl = false } = {}) {
  const clock = new SteeredClock();
  /** Subscriptions that were not ended. */
  const open = new Set<RequestWatcher>();
  const subscribe = (watcher: RequestWatcher) => {
    open.add(watcher);
    return () => open.delete(watcher);
  };
  const newEndpoint = (): ConnectedEndpoint => ({
    url: 'https://cam.example.com',
    ended: new Promise(() => {}),
    close: async () => {},
    ...(atUrl ? {} : { watchRequests: subscribe }),
  });
  let endpoint: ConnectedEndpoint | null = null;
  const watches = new RequestWatches(
    () => endpoint,
    (_, watcher) => (atUrl ? subscribe(watcher) : null),
    clock,
  );
  const lines: string[] = [];
  return {
    clock,
    open,
    lines,
    watch: () => watches.watch('a', (line) => lines.push(line)),
    bind: () => {
      endpoint = newEndpoint();
      watches.opened('a', endpoint);
    },
    lose: () => {
      endpoint = null;
      for (const watcher of open) watcher.onEnd();
      open.clear();
    },
    tell: (line: string) => {
      for (const watcher of open) watcher.onLine(line);
    },
  };
}

it.each([false, true])(
  'a watch follows the tunnel across sessions, and ends (gateway in this process: %s)',
  async (atUrl) => {
    const { clock, open, lines, watch, bind, lose, tell } = setUp({ atUrl });
    const one = watch();
    expect([one.isActive, open.size]).toEqual([false, 0]);
    bind();
    tell('1');
    lose();
    expect(one.isActive).toBe(false);
    bind();
    tell('2');
    expect([one.isActive, open.size, lines]).toEqual([true, 1, ['1', '2']]);
    one.stop();
    bind();
    await clock.advance(60_000);
    expect([one.isActive, open.size]).toEqual([false, 0]);
  },
);

it('reports that end while the endpoint is online are asked for again', async () => {
  const { clock, open, lines, watch, bind, tell } = setUp();
  bind();
  const one = watch();
  for (const watcher of open) watcher.onEnd();
  open.clear();
  await clock.advance(60_000);
  tell('1');
  expect([one.isActive, lines]).toEqual([true, ['1']]);
});

it('with a gateway that does not report, a watch is not active', () => {
  const endpoint: ConnectedEndpoint = { url: 'https://a.example', ended: new Promise(() => {}), close: async () => {} };
  const watches = new RequestWatches(
    () => endpoint,
    () => null,
    new SteeredClock(),
  );
  expect(watches.watch('a', () => {}).isActive).toBe(false);
});
