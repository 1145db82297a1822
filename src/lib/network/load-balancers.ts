import { connect, type Socket } from 'node:net';
import type { Log } from '../log/log.ts';
import { Repeats } from '../log/repeats.ts';
import { peek } from '../tls/client-hello.ts';
import { type Cidr, parseAddress, withoutMapping } from './ip-address.ts';
import { type ConnectionEnds, OWN_CONNECTION, parseProxyHeader, signedValueOf } from './proxy-protocol.ts';

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

  /**
   * @param balancers null: none
   * @returns what to do with a connection, whose client `accept` then sees: also one that uses IPv4 on a port of IPv6
   */
  static before(balancers: LoadBalancers | null, accept: (socket: Socket) => void): (socket: Socket) => void {
    return (socket) => {
      if (balancers?.isOurs(socket)) return void balancers.#readHeader(socket, accept);
      if (withoutMapping(socket.remoteAddress ?? '') !== socket.remoteAddress) setUnmapped(socket);
      accept(socket);
    };
  }

  private isOurs({ remoteAddress }: Socket): boolean {
    return isOf(this.ranges, remoteAddress);
  }

  async #readHeader(socket: Socket, accept: (socket: Socket) => void): Promise<void> {
    // An error is followed by 'close'.
    socket.on('error', () => {});
    const late = setTimeout(() => this.#refuse(socket), HEADER_MS);
    const header = await peek(socket, parseProxyHeader);
    clearTimeout(late);
    if (socket.destroyed) return;
    if (header === null) return this.#refuse(socket);
    const bytes: Buffer = socket.read(header.length);
    // Another gateway may have an address of these ranges; its header is for who can check it.
    if (signedValueOf(bytes, header) !== null) socket.unshift(bytes);
    else if (header.ends) setAddresses(socket, header.ends);
    accept(socket);
  }

  #refuse(socket: Socket): void {
    socket.destroy();
    const times = this.#refusals.timesDue('header');
    if (times !== null)
      this.log.warn({ address: socket.remoteAddress, times }, 'connection of a load balancer without a PROXY header');
  }
}

function isOf(ranges: readonly Cidr[], text = ''): boolean {
  const address = parseAddress(text);
  return address !== null && ranges.some((range) => range.contains(address));
}

/**
 * Connects to a program on this machine, which may take the connection for a load balancer's: then it begins with a header that says
 * that it is not a client's.
 *
 * @param balancers of that program
 */
export function connectHere(place: { host: string; port: number }, balancers: readonly Cidr[]): Socket {
  const socket = connect(place);
  return socket.once('connect', () => {
    if (isOf(balancers, socket.localAddress)) socket.write(OWN_CONNECTION);
  });
}

function setUnmapped(socket: Socket): void {
  const { remoteAddress = '', remotePort: clientPort = 0, localAddress = '', localPort: serverPort = 0 } = socket;
  const [clientIp, serverIp] = [withoutMapping(remoteAddress), withoutMapping(localAddress)];
  if (clientIp !== remoteAddress) setAddresses(socket, { clientIp, clientPort, serverIp, serverPort });
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
