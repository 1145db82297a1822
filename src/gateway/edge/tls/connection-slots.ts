import type { Socket } from 'node:net';
import { resetConnection } from '../http/reset-connection.ts';

/** Limits the client connections of a port. A new one replaces an idle one, or else the oldest that may be evicted. */
export class ConnectionSlots {
  readonly #taken = new Set<Socket>();
  /** Oldest first. */
  readonly #evictable = new Set<Socket>();

  /** @param closeIdle closes one idle connection; returns false when all are busy */
  constructor(
    private readonly limit: number,
    private readonly closeIdle: () => boolean,
  ) {}

  /**
   * Takes a slot until the connection closes.
   *
   * @returns false when all slots are taken by busy connections; the new connection has been reset then
   */
  take(socket: Socket): boolean {
    if (this.#taken.size >= this.limit && !this.closeIdle() && !this.#evictOldest()) {
      resetConnection(socket);
      return false;
    }
    this.#taken.add(socket);
    socket.once('close', () => this.#taken.delete(socket));
    return true;
  }

  /** The connection has yet to prove useful: it may be closed for another one. */
  allowEviction(socket: Socket): void {
    this.#evictable.add(socket);
  }

  preventEviction(socket: Socket): void {
    this.#evictable.delete(socket);
  }

  #evictOldest(): boolean {
    const [oldest] = this.#evictable;
    oldest?.destroy();
    return oldest !== undefined && this.#evictable.delete(oldest);
  }
}
