import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { PortRange } from '../../src/lib/network/port-range.ts';

/** Where a UDP socket on a port says to the other tests' processes that the port is taken. */
const RESERVATIONS = '127.0.0.99';

/**
 * Consecutive free ports below the ephemeral range, of this process alone until it ends: a test may close one of them and
 * listen again, and no test beside it gets the port meanwhile.
 */
export async function freePorts(count: number): Promise<PortRange> {
  for (;;) {
    const first = 21_000 + Math.floor(Math.random() * 10_000);
    const ports = Array.from({ length: count }, (_, at) => first + at);
    const free = await Promise.all(ports.map(async (port) => (await reserved(port)) && (await isFree(port))));
    if (free.every(Boolean)) return { first, last: first + count - 1 };
  }
}

/** Whether the port could be reserved. */
/** Whether nobody else had it. */
async function reserved(port: number): Promise<boolean> {
  const reservation = createSocket('udp4').bind(port, RESERVATIONS).unref();
  try {
    await once(reservation, 'listening');
    return true;
  } catch {
    return false;
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
