import type { Socket } from 'node:net';

/**
 * Limits the connections that are still sending their ClientHello, or are handshaking as an agent: beyond the limit, the
 * oldest is closed. None of them counts as a client connection yet.
 */
export class HelloLimit {
  /** Oldest first. */
  readonly #sockets = new Set<Socket>();

  constructor(private readonly limit: number) {}

  /** Counts a connection until the promise settles. */
  async during<T>(socket: Socket, promise: Promise<T>): Promise<T> {
    this.#sockets.add(socket);
    if (this.#sockets.size > this.limit) {
      const [oldest] = this.#sockets;
      oldest?.destroy();
    }
    try {
      return await promise;
    } finally {
      this.#sockets.delete(socket);
    }
  }
}
