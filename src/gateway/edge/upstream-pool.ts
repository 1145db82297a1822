import type { ClientInfo, GatewayEndpoint } from '../endpoint.ts';
import { StreamLine } from './stream-line.ts';
import { SweptSet } from './swept-set.ts';
import { type ConnectionOwner, UpstreamConnection } from './upstream-connection.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** How often deadlines are looked at, in milliseconds. */
const SWEEP = 250;

/** The connections to one endpoint's upstream. */
export class UpstreamPool implements UpstreamLinks, ConnectionOwner {
  readonly line: StreamLine;
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #all = new SweptSet<UpstreamConnection>(SWEEP);
  /** The last one used is taken first, so that surplus ones fall idle and close. */
  readonly #idle: UpstreamConnection[] = [];

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits) {
    this.#endpoint = endpoint;
    this.#limits = limits;
    this.line = new StreamLine(limits.streamWait);
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
    return connection;
  }

  idle(connection: UpstreamConnection): void {
    this.#idle.push(connection);
  }

  gone(connection: UpstreamConnection): void {
    if (!this.#all.delete(connection)) return;
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  destroy(reason: Error): void {
    for (const connection of [...this.#all]) connection.fail(reason);
  }
}
