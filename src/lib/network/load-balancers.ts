import type { Socket } from 'node:net';
import type { Log } from '../log/log.ts';
import { Repeats } from '../log/repeats.ts';
import type { Cidr } from './cidr.ts';
import { parseAddress } from './ip-address.ts';
import { type ConnectionEnds, parseProxyHeader } from './proxy-protocol.ts';

/** Milliseconds that a load balancer has for its header, which it sends at once. */
const HEADER_MS = 5_000;

/**
 * The load balancers in front of this program. Their connections begin with a PROXY header, which says who the client is. From
 * nobody else is one read: anyone could claim to be somebody.
 */
export class LoadBalancers {
  readonly #refusals = new Repeats();

  constructor(
    private readonly ranges: readonly Cidr[],
    private readonly log: Log,
  ) {}

  /** Calls `accept` once the client of a connection is known: at once, unless a load balancer has opened it. */
  introduce(socket: Socket, accept: (socket: Socket) => void): void {
    if (this.#isOurs(socket)) this.#readHeader(socket, accept);
    else accept(socket);
  }

  #isOurs({ remoteAddress = '' }: Socket): boolean {
    if (this.ranges.length === 0) return false;
    const address = parseAddress(remoteAddress);
    return address !== null && this.ranges.some((range) => range.contains(address));
  }

  #readHeader(socket: Socket, accept: (socket: Socket) => void): void {
    let received: Buffer = Buffer.alloc(0);
    const late = setTimeout(() => this.#refuse(socket), HEADER_MS);
    const gone = () => clearTimeout(late);
    // An error is followed by 'close'.
    const failed = () => {};
    const leave = () => socket.destroy();
    const read = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      received = Buffer.concat([received, chunk]);
      const header = parseProxyHeader(received);
      if (header === undefined) return;
      clearTimeout(late);
      socket.off('readable', read).off('end', leave).off('close', gone);
      if (header === null) return this.#refuse(socket);
      if (header.ends) setAddresses(socket, header.ends);
      if (received.length > header.length) socket.unshift(received.subarray(header.length));
      accept(socket);
      socket.off('error', failed);
    };
    socket.on('readable', read).on('end', leave).on('close', gone).on('error', failed);
  }

  #refuse(socket: Socket): void {
    socket.destroy();
    const times = this.#refusals.timesDue('header');
    if (times !== null)
      this.log.warn({ address: socket.remoteAddress, times }, 'connection of a load balancer without a PROXY header');
  }
}

/** What a connection says of its ends from now on. */
export function setAddresses(socket: Socket, { clientIp, clientPort, serverIp, serverPort }: ConnectionEnds): void {
  const remoteFamily = clientIp.includes(':') ? 'IPv6' : 'IPv4';
  const known = {
    remoteAddress: clientIp,
    remotePort: clientPort,
    remoteFamily,
    localAddress: serverIp,
    localPort: serverPort,
  };
  for (const [name, value] of Object.entries(known)) Object.defineProperty(socket, name, { value });
}
