import type { GatewayEndpoint } from '../../endpoints/endpoint.ts';

/** Something that is over at some time. */
interface Passing {
  once(event: 'close', listener: () => void): unknown;
}

/** What the policies of endpoints have forwarded to internal ones: it ends with those as well that it came through. */
export class OpenConnections {
  readonly #open = new Map<GatewayEndpoint, Set<() => void>>();
  /** For what was still on its way in. */
  readonly #removed = new WeakSet<GatewayEndpoint>();

  /**
   * Notes that something came through endpoints, until it is over.
   *
   * @param end ends it; called at once when one of them is gone already
   */
  enter(through: readonly GatewayEndpoint[], passing: Passing, end: () => void): void {
    if (through.some((endpoint) => this.#removed.has(endpoint))) {
      end();
      return;
    }
    for (const endpoint of through) {
      const ends = this.#open.get(endpoint) ?? new Set();
      this.#open.set(endpoint, ends.add(end));
      passing.once('close', () => {
        if (ends.delete(end) && ends.size === 0) this.#open.delete(endpoint);
      });
    }
  }

  /** Ends all that came through an endpoint, which is offline. */
  remove(endpoint: GatewayEndpoint): void {
    this.#removed.add(endpoint);
    const ends = this.#open.get(endpoint) ?? [];
    this.#open.delete(endpoint);
    for (const end of ends) end();
  }
}
