import { expect, it } from 'vitest';
import {
  NO_TCP_PORT,
  type PortLease,
  type PortMemory,
  TcpPortAllocator,
} from '../../../src/gateway/endpoints/tcp-port-allocator.ts';
import { isWithin, type PortRange } from '../../../src/lib/network/port-range.ts';
import { seeded } from '../../support/seeded.ts';
import { silentLog } from '../../support/silent-log.ts';

const STEPS = 10_000;
/** After so many steps, no port was ever used. */
const FORGOTTEN = 200;

it('a port is one that was never used or else the least recently used one, as in a walk through all, after 10,000 claims', async () => {
  const next = seeded(1);
  const random = (end: number): number => Math.floor(next() * end);
  const range = { first: 100, last: 139 };
  const ports = Array.from({ length: 40 }, (_, at) => 100 + at);
  /** The least recently used one first. */
  const used = new Set<number>();
  let reserved = new Set<number>();
  const memory: PortMemory = {
    used: () => [...used],
    isKnown: (port) => used.has(port) || reserved.has(port),
    reserved: () => [...reserved],
    remember: async (port) => {
      used.delete(port);
      used.add(port);
    },
  };
  const opener = { open: async () => {}, close: () => {} };
  const allocator = new TcpPortAllocator({ range, opener, memory, log: silentLog });
  const open = new Map<number, PortLease>();
  for (let step = 0; step < STEPS; step += 1) {
    if (step % FORGOTTEN === 0) {
      used.clear();
      reserved = new Set(ports.filter(() => random(8) === 0));
    }
    const gone = [...open.keys()][random(50)];
    if (gone !== undefined) {
      open.get(gone)?.end();
      open.delete(gone);
      continue;
    }
    const first = 90 + random(60);
    const ranges: PortRange[] = random(2) === 0 ? [] : [{ first, last: first + random(12) }];
    const free = ports.filter(
      (port) => !open.has(port) && !reserved.has(port) && (ranges.length === 0 || isWithin(port, ranges)),
    );
    const fresh = free.filter((port) => !used.has(port));
    const oldest = [...used].find((port) => free.includes(port));
    const expected = fresh.length > 0 ? fresh : oldest === undefined ? [NO_TCP_PORT] : [oldest];
    const claimed = await allocator.claim(null, ranges).catch(({ code }: { code: string }) => ({ port: code }));
    expect(expected).toContain(claimed.port);
    if ('lease' in claimed) open.set(claimed.port, claimed.lease);
  }
});
