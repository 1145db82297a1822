import { EventEmitter } from 'node:events';
import type { GatewayEndpoint } from './endpoint.ts';
import type { BoundEndpoint } from './sessions/bound-endpoint.ts';

/** The endpoints that are online, by hostname: what the edge routes by. Emits `removed` when one goes offline. */
export class EndpointRegistry extends EventEmitter<{ removed: [endpoint: GatewayEndpoint] }> {
  readonly #byHost = new Map<string, BoundEndpoint>();

  /** @param host lower-case hostname without a port */
  lookup(host: string): BoundEndpoint | undefined {
    return this.#byHost.get(host);
  }

  /** Every endpoint online, in order of binding. */
  list(): BoundEndpoint[] {
    return [...this.#byHost.values()];
  }

  /** Puts an endpoint online; returns false when its hostname is taken. */
  add(endpoint: BoundEndpoint): boolean {
    if (this.#byHost.has(endpoint.host)) return false;
    this.#byHost.set(endpoint.host, endpoint);
    return true;
  }

  /** Takes an endpoint offline; from here on nothing is routed to it. */
  remove(endpoint: BoundEndpoint): void {
    if (this.#byHost.get(endpoint.host) !== endpoint) return;
    this.#byHost.delete(endpoint.host);
    this.emit('removed', endpoint);
  }
}
