import type { Socket } from 'node:net';
import { ClientShares } from '../../../lib/network/client-shares.ts';

/**
 * Limits the connections that are still sending their ClientHello, or are handshaking as an agent. Beyond the limit, the
 * oldest of the network that holds most is closed. None of them counts as a client connection yet.
 */
export class HelloLimit {
  readonly #shares = new ClientShares<Socket>();
  #count = 0;

  constructor(private readonly limit: number) {}

  /** Counts a connection until the promise settles. */
  async during<T>(socket: Socket, promise: Promise<T>): Promise<T> {
    const address = socket.remoteAddress;
    this.#shares.add(address, socket);
    this.#count += 1;
    if (this.#count > this.limit) this.#closeOne();
    try {
      return await promise;
    } finally {
      this.#shares.delete(address, socket);
      this.#count -= 1;
    }
  }

  #closeOne(): void {
    for (const socket of this.#shares.largest) {
      if (socket.destroyed) continue;
      socket.destroy();
      return;
    }
  }
}
