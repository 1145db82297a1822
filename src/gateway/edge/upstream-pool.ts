import type { ClientInfo, GatewayEndpoint } from '../endpoint.ts';
import { type ConnectionOwner, UpstreamConnection } from './upstream-connection.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** How often deadlines are looked at, in milliseconds: a timer for every request would cost more than it is worth. */
const SWEEP = 250;

/** The connections to one endpoint's upstream. */
export class UpstreamPool implements UpstreamLinks, ConnectionOwner {
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #all = new Set<UpstreamConnection>();
  /** The last one used is taken first, so that surplus ones fall idle and close. */
  readonly #idle: UpstreamConnection[] = [];
  #sweeper: NodeJS.Timeout | undefined;

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits) {
    this.#endpoint = endpoint;
    this.#limits = limits;
  }

  /** The connection comes back by itself. */
  take(from: ClientInfo): UpstreamConnection {
    return this.#reusable(from) ?? this.fresh(from);
  }

  /** A connection that has told the upstream whose it is takes requests of that client's connection alone. */
  #reusable({ address, proxyHeader }: ClientInfo): UpstreamConnection | undefined {
    if (!proxyHeader) return this.#idle.pop();
    const at = this.#idle.findIndex(({ from }) => from.address === address);
    return at === -1 ? undefined : this.#idle.splice(at, 1)[0];
  }

  fresh(from: ClientInfo): UpstreamConnection {
    const connection = new UpstreamConnection(this.#endpoint, this.#limits, from, this);
    this.#all.add(connection);
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP).unref();
    return connection;
  }

  idle(connection: UpstreamConnection): void {
    this.#idle.push(connection);
  }

  gone(connection: UpstreamConnection): void {
    if (!this.#all.delete(connection)) return;
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
    if (this.#all.size > 0) return;
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
  }

  destroy(reason: Error): void {
    for (const connection of [...this.#all]) connection.fail(reason);
  }

  #sweep(): void {
    const now = performance.now();
    for (const connection of [...this.#all]) connection.checkTime(now);
  }
}
