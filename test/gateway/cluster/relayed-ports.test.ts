import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { OnlineRow } from '../../../src/gateway/cluster/online-rows.ts';
import { RelayedPorts } from '../../../src/gateway/cluster/served-elsewhere.ts';
import { silentLog } from '../../support/silent-log.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** An endpoint that is online at another node. */
const rowOf = (key: string, port: number) =>
  ({ key, protocol: 'tcp', place: `tcp ${port}`, taken: false, view: { port } }) as unknown as OnlineRow;

/** The ports of this node, of which other programs use some. */
class Ports {
  readonly used = new Set<number>();
  readonly open: number[] = [];
  readonly opener = {
    open: async (port: number) => {
      if (this.used.has(port)) throw new Error('address already in use');
      this.open.push(port);
    },
    close: (port: number) => {
      this.open.splice(this.open.indexOf(port), 1);
    },
  };
  readonly relayed = new RelayedPorts(this.opener, silentLog);
}

it('tries a port again that another program used', async () => {
  const { used, open, relayed } = new Ports();
  used.add(7000);
  relayed.update(rowOf('a', 7000), true);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(open).toEqual([]);
  used.clear();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(open).toEqual([7000]);
  relayed.update(rowOf('a', 7000), false);
  expect(open).toEqual([]);
});

it('closes only what it has opened', async () => {
  const { used, open, opener, relayed } = new Ports();
  used.add(7000);
  relayed.update(rowOf('a', 7000), true);
  await vi.advanceTimersByTimeAsync(0);
  used.clear();
  await opener.open(7000);
  relayed.update(rowOf('a', 7000), false);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(open).toEqual([7000]);
});

it('tries nothing again for endpoints that have gone, or once it has stopped', async () => {
  const { used, open, relayed } = new Ports();
  used.add(7000);
  used.add(7001);
  relayed.update(rowOf('a', 7000), true);
  relayed.update(rowOf('b', 7001), true);
  await vi.advanceTimersByTimeAsync(0);
  used.clear();
  relayed.update(rowOf('a', 7000), false);
  relayed.stop();
  await vi.advanceTimersByTimeAsync(20_000);
  expect(open).toEqual([]);
  expect(vi.getTimerCount()).toBe(0);
});
