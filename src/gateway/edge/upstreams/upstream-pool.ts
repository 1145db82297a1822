import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { DeadlineSweep } from '../connections/deadline-sweep.ts';
import { StreamQueue } from './stream-queue.ts';
import { type ConnectionOwner, UpstreamConnection } from './upstream-connection.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

/** Milliseconds between checks of deadlines. */
const SWEEP_MS = 250;

/**
 * Milliseconds after which an upstream that announces no timeout may be about to close an idle connection. A request sent at
 * that moment is lost, so only repeatable ones may be. Servers wait for two seconds or longer.
 */
const STALE_AFTER = 1000;

export class UpstreamPool implements UpstreamLinks, ConnectionOwner {
  readonly queue: StreamQueue;
  readonly #all = new DeadlineSweep<UpstreamConnection>(SWEEP_MS);
  /** The most recently used one is taken first, so that surplus ones time out. */
  readonly #idle: UpstreamConnection[] = [];

  constructor(
    private readonly endpoint: GatewayEndpoint,
    private readonly limits: UpstreamLimits,
  ) {
    this.queue = new StreamQueue(limits.streamWait);
  }

  /** The connection returns to the pool automatically. */
  take(from: ClientInfo, repeatable: boolean): UpstreamConnection {
    return this.#reusable(from, repeatable) ?? this.takeNew(from);
  }

  /** A connection with a PROXY header takes requests of that client's connection only. */
  #reusable({ address, proxyHeader }: ClientInfo, repeatable: boolean): UpstreamConnection | undefined {
    const idle = this.#idle;
    const at = proxyHeader ? idle.findIndex(({ from }) => from.address === address) : idle.length - 1;
    const connection = idle[at];
    if (!connection || !(repeatable || connection.idleTime < STALE_AFTER)) return undefined;
    return at === idle.length - 1 ? idle.pop() : idle.splice(at, 1)[0];
  }

  takeNew(from: ClientInfo): UpstreamConnection {
    const connection = new UpstreamConnection(this.endpoint, this.limits, from, this);
    this.#all.add(connection);
    return connection;
  }

  idle(connection: UpstreamConnection): void {
    this.#idle.push(connection);
    this.queue.retry();
  }

  spare(): ByteChannel | null {
    const connection = this.#idle.at(-1);
    return connection && connection.idleTime < STALE_AFTER ? connection.release() : null;
  }

  remove(connection: UpstreamConnection): void {
    if (!this.#all.delete(connection)) return;
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  destroy(reason: Error): void {
    for (const connection of [...this.#all]) connection.fail(reason);
  }
}
