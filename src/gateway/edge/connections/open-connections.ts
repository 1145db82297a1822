import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';

/** A connection or response that closes at some time. */
interface Closable {
  once(event: 'close', listener: () => void): unknown;
}

/** The open connections and requests that policies have forwarded: they end when an endpoint on their way goes offline. */
export class OpenConnections {
  readonly #open = new Map<GatewayEndpoint, Set<() => void>>();
  /** For connections that are added after the removal. */
  readonly #removed = new WeakSet<GatewayEndpoint>();

  /**
   * Tracks a connection until it closes.
   *
   * @param through the endpoints that have forwarded it
   * @param end ends the connection; called at once when one of the endpoints is offline already
   */
  add(through: readonly GatewayEndpoint[], connection: Closable, end: () => void): void {
    if (through.some((endpoint) => this.#removed.has(endpoint))) {
      end();
      return;
    }
    for (const endpoint of through) {
      const ends = this.#open.get(endpoint) ?? new Set();
      this.#open.set(endpoint, ends.add(end));
      connection.once('close', () => {
        if (ends.delete(end) && ends.size === 0) this.#open.delete(endpoint);
      });
    }
  }

  /** Ends everything that an endpoint has forwarded. */
  remove(endpoint: GatewayEndpoint): void {
    this.#removed.add(endpoint);
    const ends = this.#open.get(endpoint) ?? [];
    this.#open.delete(endpoint);
    for (const end of ends) end();
  }
}
