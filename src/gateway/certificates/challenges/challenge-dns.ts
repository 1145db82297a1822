import { createSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, createServer, isIPv6, type Server, type Socket } from 'node:net';
import { hasErrno } from '../../../lib/errors.ts';
import type { Log } from '../../../lib/log/log.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { answerQuery, type ChallengeZone, MAX_QUERY_BYTES } from './challenge-dns-answer.ts';

const WINDOW_MS = 1000;
/** A validation takes a resolver a handful of queries; CAs validate from several networks. */
const PER_SOURCE = 50;
/** The most expensive query takes a Pi about 0.5 ms. */
const TOTAL = 500;

/** Limits the responses of each second, so that forged queries cannot use the server as an amplifier. */
export class QueryRate {
  readonly #counts = new Map<string, number>();
  #total = 0;
  #windowEnds = Number.NEGATIVE_INFINITY;

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  allows(address: string): boolean {
    const now = this.clock.now();
    if (now >= this.#windowEnds) this.#startWindow(now);
    const source = networkOf(address);
    const count = (this.#counts.get(source) ?? 0) + 1;
    if (this.#total >= TOTAL || count > PER_SOURCE) return false;
    this.#counts.set(source, count);
    this.#total += 1;
    return true;
  }

  #startWindow(now: number): void {
    this.#counts.clear();
    this.#total = 0;
    this.#windowEnds = now + WINDOW_MS;
  }
}

/** The /24 of an IPv4 address, the /56 of an IPv6 one: one owner usually holds all of its addresses. */
function networkOf(address: string): string {
  return clientNetwork(address).replace(/^(\d+\.\d+\.\d+\.)\d+$/, '$1');
}

/** Attempts to find a port that is free for both UDP and TCP. */
const PORT_ATTEMPTS = 10;

/** The authoritative DNS server of the challenge zone, over UDP and TCP. */
export class ChallengeDns {
  readonly #rate: QueryRate;
  readonly #connections: ChallengeDnsConnections;
  readonly #log: Log;
  #listening: { udp: UdpSocket; tcp: Server } | null = null;

  constructor(
    private readonly options: {
      /** IP address to listen on: `::` takes both families. */
      host: string;
      /** Resolvers use port 53; 0 chooses a free port. */
      port: number;
      zone: ChallengeZone;
    },
    deps: { clock: Pick<Clock, 'now'>; log: Log },
  ) {
    this.#log = deps.log;
    this.#rate = new QueryRate(deps.clock);
    this.#connections = new ChallengeDnsConnections((packet, address) => this.#answer(packet, address, 'tcp'));
  }

  /** Listens and returns the port; throws the system's error, for example `EACCES` or `EADDRINUSE`. */
  async start(): Promise<number> {
    for (let attempt = 1; ; attempt += 1) {
      const tcp = createServer((socket) => this.#connections.take(socket));
      tcp.listen({ host: this.options.host, port: this.options.port });
      await once(tcp, 'listening');
      const { port } = tcp.address() as AddressInfo;
      try {
        this.#listening = { tcp, udp: await this.#bindUdp(port) };
        tcp.on('error', (err) => this.#log.warn({ err }, 'challenge DNS: cannot accept a connection'));
        return port;
      } catch (error) {
        tcp.close();
        // The UDP port of this number is taken: try another number.
        const mayRetry = this.options.port === 0 && hasErrno(error, 'EADDRINUSE') && attempt < PORT_ATTEMPTS;
        if (!mayRetry) throw error;
      }
    }
  }

  async stop(): Promise<void> {
    const listening = this.#listening;
    if (!listening) return;
    this.#listening = null;
    this.#connections.closeAll();
    await Promise.all([
      new Promise<void>((resolve) => listening.tcp.close(() => resolve())),
      new Promise<void>((resolve) => listening.udp.close(() => resolve())),
    ]);
  }

  async #bindUdp(port: number): Promise<UdpSocket> {
    const { host } = this.options;
    const udp = createSocket(isIPv6(host) ? 'udp6' : 'udp4');
    try {
      udp.bind({ address: host, port });
      await once(udp, 'listening');
    } catch (error) {
      udp.close();
      throw error;
    }
    udp.on('message', (packet, from) => this.#answerDatagram(udp, packet, from));
    udp.on('error', (err) => this.#log.warn({ err }, 'challenge DNS: cannot receive'));
    return udp;
  }

  #answerDatagram(udp: UdpSocket, packet: Buffer, from: RemoteInfo): void {
    const answer = this.#answer(packet, from.address, 'udp');
    if (!answer || from.port === 0) return;
    udp.send(answer, from.port, from.address, (err) => {
      if (err) this.#log.debug({ err, address: from.address }, 'challenge DNS: cannot send a response');
    });
  }

  #answer(packet: Buffer, address: string, transport: 'udp' | 'tcp'): Buffer | null {
    return this.#rate.allows(address) ? answerQuery(packet, this.options.zone, transport) : null;
  }
}

const MAX_CONNECTIONS = 64;
/** Resolvers use TCP for single responses that are too long for UDP. */
const MAX_QUERIES = 32;
const LIFETIME_MS = 10_000;

/** Answers a query; null closes the connection. */
type Answering = (packet: Buffer, address: string) => Buffer | null;

/** DNS over TCP (RFC 7766): each message follows its length. */
class ChallengeDnsConnections {
  readonly #open = new Set<Socket>();

  constructor(private readonly answer: Answering) {}

  take(socket: Socket): void {
    // The oldest connection makes room for a new one.
    if (this.#open.size >= MAX_CONNECTIONS) for (const oldest of [...this.#open].slice(0, 1)) oldest.destroy();
    this.#open.add(socket);
    const timer = setTimeout(() => socket.destroy(), LIFETIME_MS);
    socket.on('close', () => {
      clearTimeout(timer);
      this.#open.delete(socket);
    });
    socket.on('error', () => socket.destroy());
    this.#serve(socket, socket.remoteAddress ?? '');
  }

  closeAll(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #serve(socket: Socket, address: string): void {
    let unread: Buffer = Buffer.alloc(0);
    let queries = 0;
    socket.on('data', (chunk) => {
      unread = Buffer.concat([unread, chunk]);
      while (unread.length >= 2 && !socket.destroyed) {
        const length = unread.readUInt16BE(0);
        if (length > MAX_QUERY_BYTES) return void socket.destroy();
        if (unread.length < 2 + length) return;
        queries += 1;
        const answer = queries > MAX_QUERIES ? null : this.answer(unread.subarray(2, 2 + length), address);
        if (!answer) return void socket.destroy();
        unread = unread.subarray(2 + length);
        const prefix = Buffer.alloc(2);
        prefix.writeUInt16BE(answer.length);
        socket.write(Buffer.concat([prefix, answer]));
      }
    });
  }
}
