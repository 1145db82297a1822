import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
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
/** Begins the first line of that table. */
const HEADING = 'sl';
const PIECE_BYTES = 16_384;

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
  const listening = new Map(['tcp', 'tcp6'].flatMap((table) => [...listeningSockets(table)]));
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

/** Addresses by inode. The kernel lists listening sockets first, before what may be a hundred thousand connections. */
function* listeningSockets(table: string): Generator<[number, { host: string; port: number }]> {
  for (const line of linesOf(`/proc/self/net/${table}`)) {
    const [number, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    const [address = '', port = ''] = local.split(':');
    if (number === HEADING) continue;
    if (state !== LISTENING) return;
    yield [Number(inode), { host: addressOf(address), port: Number.parseInt(port, 16) }];
  }
}

/** The lines of a file, as far as they are asked for. */
function* linesOf(path: string): Generator<string> {
  const file = openIfThere(path);
  if (file === null) return;
  try {
    const piece = Buffer.alloc(PIECE_BYTES);
    for (let text = ''; ; ) {
      const read = readSync(file, piece);
      if (read === 0) return;
      const lines = (text + piece.toString('latin1', 0, read)).split('\n');
      text = lines.pop() ?? '';
      yield* lines;
    }
  } finally {
    closeSync(file);
  }
}

function openIfThere(path: string): number | null {
  try {
    return openSync(path, 'r');
  } catch (error) {
    // Without IPv6, there is no table of it.
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  }
}

/** The kernel prints the words of an address in the byte order of the machine: little endian on all that Node.js supports. */
function addressOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex').swap32();
  if (bytes.length === 4) return bytes.join('.');
  return canonicalIpv6(Array.from({ length: 8 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16)).join(':'));
}
