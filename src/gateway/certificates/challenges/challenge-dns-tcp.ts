import type { Socket } from 'node:net';
import { MAX_QUERY_BYTES } from './challenge-dns-answer.ts';

const MAX_CONNECTIONS = 64;
/** Resolvers use TCP for single responses that are too long for UDP. */
const MAX_QUERIES = 32;
const LIFETIME_MS = 10_000;

/** Answers a query; null closes the connection. */
type Answering = (packet: Buffer, address: string) => Buffer | null;

/** DNS over TCP (RFC 7766): each message follows its length. */
export class ChallengeDnsConnections {
  readonly #open = new Set<Socket>();

  constructor(private readonly answer: Answering) {}

  /** Serves a connection until it ends, fails, or reaches its limit of time or queries. */
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
