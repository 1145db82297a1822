import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { DeadlineSweep } from '../connections/deadline-sweep.ts';
import { StreamQueue } from './stream-queue.ts';
import { type ConnectionOwner, UpstreamConnection } from './upstream-connection.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** How often deadlines are looked at, in milliseconds. */
const SWEEP = 250;

/**
 * Milliseconds after which an upstream that has not said how long it waits may be about to hang up: what it then gets in
 * between is lost, and must not be sent twice unless it can be. Servers wait for two seconds or longer.
 */
const UNSURE_AFTER = 1000;

/** The connections to one endpoint's upstream. */
export class UpstreamPool implements UpstreamLinks, ConnectionOwner {
  readonly line: StreamQueue;
  readonly #endpoint: GatewayEndpoint;
  readonly #limits: UpstreamLimits;
  readonly #all = new DeadlineSweep<UpstreamConnection>(SWEEP);
  /** The last one used is taken first, so that surplus ones fall idle and close. */
  readonly #idle: UpstreamConnection[] = [];

  constructor(endpoint: GatewayEndpoint, limits: UpstreamLimits) {
    this.#endpoint = endpoint;
    this.#limits = limits;
    this.line = new StreamQueue(limits.streamWait);
  }

  /** The connection comes back by itself. */
  take(from: ClientInfo, repeatable: boolean): UpstreamConnection {
    return this.#reusable(from, repeatable) ?? this.fresh(from);
  }

  /** A connection that has told the upstream whose it is takes requests of that client's connection alone. */
  #reusable({ address, proxyHeader }: ClientInfo, repeatable: boolean): UpstreamConnection | undefined {
    const idle = this.#idle;
    const at = proxyHeader ? idle.findIndex(({ from }) => from.address === address) : idle.length - 1;
    const connection = idle[at];
    if (!connection || !(repeatable || connection.idleTime < UNSURE_AFTER)) return undefined;
    return at === idle.length - 1 ? idle.pop() : idle.splice(at, 1)[0];
  }

  fresh(from: ClientInfo): UpstreamConnection {
    const connection = new UpstreamConnection(this.#endpoint, this.#limits, from, this);
    this.#all.add(connection);
    return connection;
  }

  idle(connection: UpstreamConnection): void {
    this.#idle.push(connection);
    this.line.serve();
  }

  spare(): ByteChannel | null {
    const connection = this.#idle.at(-1);
    return connection && connection.idleTime < UNSURE_AFTER ? connection.release() : null;
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
