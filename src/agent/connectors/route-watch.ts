import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { isLoopbackHost } from '../../lib/network/ip-address.ts';

export interface NetworkRoute {
  /** The device's own address on that way. */
  readonly address: string;
  readonly device: string;
}

/** Finds the route to an IP address; null when there is none. */
export type FindRoute = (peer: string) => Promise<NetworkRoute | null>;

/**
 * Watches the route to a session's peer. When the router was restarted, or the device went from LTE to Wi-Fi, nobody tells
 * the session that its connection is dead, and heartbeats take many seconds to.
 *
 * @param peer IP address of the gateway or proxy that the session is connected to
 * @param tick resolves when it is time for a look; every two seconds, a device with a new address is back within five
 * @returns the reason why a connection made before cannot work any longer; never, when the peer is this machine
 * @throws what tick throws
 */
export async function untilRouteChanges(peer: string, find: FindRoute, tick: () => Promise<void>): Promise<string> {
  if (isLoopbackHost(peer)) return new Promise(() => {});
  let first = await find(peer);
  let seen = 0;
  for (;;) {
    await tick();
    const now = await find(peer);
    first ??= now;
    // Without any route, the old one may come back, and the connection with it.
    const hasMoved = now !== null && first !== null && (now.address !== first.address || now.device !== first.device);
    // Routes change in several steps; a second look sees the result.
    seen = hasMoved ? seen + 1 : 0;
    if (seen === 2) return `this device's address changed from ${first?.address} to ${now?.address}`;
  }
}

/**
 * Asks the kernel, by a UDP socket that sends nothing. While an address is still there, another one of the same interface
 * counts as the same: temporary IPv6 addresses follow each other every day, and connections keep theirs.
 *
 * @returns for one session, whose first route it remembers
 */
export function findRoute(): FindRoute {
  let held: NetworkRoute | null = null;
  return async (peer) => {
    const address = await sourceAddress(peer);
    if (address === null) return null;
    const owners = Object.entries(networkInterfaces()).flatMap(([device, all = []]) =>
      all.map((each) => ({ device, address: each.address })),
    );
    const device = owners.find((each) => each.address === address)?.device;
    // The address of an interface whose cable is out is still there, but does not count.
    if (device === undefined) return null;
    const keeps = held !== null && owners.some((each) => each.address === held?.address);
    if (!(keeps && held?.device === device)) held = { address, device };
    return held;
  };
}

async function sourceAddress(peer: string): Promise<string | null> {
  const socket = createSocket(isIPv6(peer) ? 'udp6' : 'udp4');
  try {
    // Any port: connecting a UDP socket sends nothing.
    socket.connect(9, peer);
    await once(socket, 'connect');
    return socket.address().address;
  } catch {
    // No route.
    return null;
  } finally {
    socket.close();
  }
}
