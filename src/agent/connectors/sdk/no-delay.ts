import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { Socket } from 'node:net';
import type { Log } from '../../../lib/log/log.ts';

/** A line of `/proc/net/tcp`: the port of the peer, the state and the inode. */
const CONNECTION = /^\s*\d+: [0-9A-F]+:[0-9A-F]{4} [0-9A-F]+:([0-9A-F]{4}) ([0-9A-F]{2}) (?:\S+ +){5}(\d+)/gm;
const ESTABLISHED = '01';

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
    const sockets = new Set(['tcp', 'tcp6'].flatMap((table) => connectionsTo(port, table)));
    for (const name of readdirSync('/proc/self/fd')) {
      if (sockets.has(targetOf(name))) setNoDelayOf(Number(name));
    }
  } catch (err) {
    log.debug({ err }, 'TCP_NODELAY not set');
  }
}

/** Names of the sockets, as `/proc/self/fd` shows them. */
function connectionsTo(port: number, table: string): string[] {
  const lines = readFileSync(`/proc/self/net/${table}`, 'latin1').matchAll(CONNECTION);
  return [...lines]
    .filter(([, remote = '', state]) => Number.parseInt(remote, 16) === port && state === ESTABLISHED)
    .map(([, , , inode]) => `socket:[${inode}]`);
}

function targetOf(descriptor: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`);
  } catch {
    return ''; // closed since it was listed
  }
}

function setNoDelayOf(descriptor: number): void {
  const handle = handles.get(descriptor) ?? new Socket({ fd: descriptor, readable: false, writable: false }).unref();
  handles.set(descriptor, handle);
  // Node skips the call when it has made the same one before, perhaps for another socket.
  handle.setNoDelay(false).setNoDelay(true);
}
