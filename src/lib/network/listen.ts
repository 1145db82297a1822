import { fstatSync, readFileSync } from 'node:fs';
import type { AddressInfo, Server } from 'node:net';
import { hasErrno, OperatorError } from '../errors.ts';
import { addressBytes, canonicalIpv6 } from './ip-address.ts';

/** A listening socket that the service manager holds: it stays open while the process behind it is replaced. */
export interface HeldSocket {
  fd: number;
  /** IP address. */
  host: string;
  port: number;
}

/** Connections that wait until the process accepts them, at most; the system may allow fewer (`net.core.somaxconn`). */
const BACKLOG = 4096;
/** The state of a listening socket in `/proc/net/tcp`. */
const LISTENING = '0A';

/**
 * Listens at an address, on the held socket that is there if there is one.
 *
 * @param port 0 for any free one
 * @returns the port
 * @throws the system's error
 */
export function listen(
  server: Server,
  at: { host: string; port: number },
  held: readonly HeldSocket[],
): Promise<number> {
  const { host, port } = at;
  const socket = held.find((each) => isAt(each, at));
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    const listening = () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    };
    // Node ignores a backlog among the options of a file descriptor.
    if (socket) server.listen({ fd: socket.fd }, BACKLOG, listening);
    else server.listen(port, host, BACKLOG, listening);
  });
}

/** Whether a held socket is at an address of the settings. */
export function isAt(socket: HeldSocket, { host, port }: { host: string; port: number }): boolean {
  return socket.port === port && addressBytes(host)?.equals(addressBytes(socket.host) ?? Buffer.alloc(0)) === true;
}

/** Finds the addresses of sockets. @throws {OperatorError} when one is not a listening TCP socket */
export function heldSockets(fds: readonly number[]): HeldSocket[] {
  if (fds.length === 0) return [];
  const listening = new Map(['tcp', 'tcp6'].flatMap(listeningSockets));
  return fds.map((fd) => {
    const at = listening.get(fstatSync(fd).ino);
    if (at === undefined) {
      throw new OperatorError(
        `file descriptor ${fd} of systemd is not a listening TCP socket: use ListenStream= with a port and Accept=no`,
      );
    }
    return { fd, ...at };
  });
}

/** Addresses by inode. */
function listeningSockets(table: string): [number, { host: string; port: number }][] {
  return readTable(`/proc/self/net/${table}`).flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    const [address = '', port = ''] = local.split(':');
    if (state !== LISTENING) return [];
    return [[Number(inode), { host: addressOf(address), port: Number.parseInt(port, 16) }]];
  });
}

function readTable(path: string): string[] {
  try {
    return readFileSync(path, 'latin1').split('\n').slice(1);
  } catch (error) {
    // Without IPv6, there is no table of it.
    if (hasErrno(error, 'ENOENT')) return [];
    throw error;
  }
}

/** The kernel prints the words of an address in the byte order of the machine: little endian on all that Node.js supports. */
function addressOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex').swap32();
  if (bytes.length === 4) return bytes.join('.');
  return canonicalIpv6(Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16)).join(':'));
}
