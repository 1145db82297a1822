import { Socket } from 'node:net';
import type { Log } from '../../../lib/log/log.ts';
import { ownConnections } from '../../../lib/process/own-connections.ts';

/** By descriptor: never more than the SDK had sockets at a time. */
const handles = new Map<number, Socket>();

/**
 * Turns off Nagle's algorithm on this process's connections to a port; Linux only. The SDK (1.7.0) leaves it on, so each
 * response waits for the acknowledgement of the credit that its request was given: a second round trip.
 *
 * The SDK does not expose its socket, so Node gets a handle for the descriptor. The handle never reads, and is never
 * closed, not even when the descriptor has another owner: closing it would close that owner's file. It is used again when
 * the SDK gets the same descriptor again.
 *
 * @param port of the peer
 */
export function setNoDelay(port: number, log: Log): void {
  if (process.platform !== 'linux') return;
  try {
    for (const { descriptor } of ownConnections('established', (peer) => peer === port)) setNoDelayOf(descriptor);
  } catch (err) {
    log.debug({ err }, 'TCP_NODELAY not set');
  }
}

function setNoDelayOf(descriptor: number): void {
  const handle = handles.get(descriptor) ?? new Socket({ fd: descriptor, readable: false, writable: false }).unref();
  handles.set(descriptor, handle);
  // Node skips the call when it has made the same one before, perhaps for another socket.
  handle.setNoDelay(false).setNoDelay(true);
}
