import { once } from 'node:events';
import { createServer } from 'node:net';
import type { PortRange } from '../../src/lib/network/port-range.ts';

/** Consecutive free ports below the ephemeral range. */
export async function freePorts(count: number): Promise<PortRange> {
  for (;;) {
    const first = 21_000 + Math.floor(Math.random() * 10_000);
    const ports = Array.from({ length: count }, (_, at) => first + at);
    if ((await Promise.all(ports.map(isFree))).every(Boolean)) return { first, last: first + count - 1 };
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}
