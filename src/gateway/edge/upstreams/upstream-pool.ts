import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { DeadlineSweep } from '../../../lib/time/deadline.ts';
import { turnTime } from '../../../lib/time/loop-turn.ts';
import type { ClientInfo, GatewayEndpoint } from '../../endpoints/endpoint.ts';
import { StreamQueue } from './stream-queue.ts';
import { type ConnectionOwner, UpstreamConnection } from './upstream-connection.ts';
import type { UpstreamLimits, UpstreamLinks } from './upstream-link.ts';

const SWEEP_MS = 250;

/**
 * Milliseconds after which an upstream that announces no timeout may be about to close an idle connection. A request sent at
 * that moment is lost, so only repeatable ones may be. Servers wait for two seconds or longer.
 */
const STALE_AFTER = 1000;
/** Milliseconds without reuse for requests that cannot be repeated, after the upstream has closed a connection early. */
const FRESH_MS = 300_000;

/** Milliseconds that a connection must be quiet after a response without a body: broken servers send one regardless. */
const QUIET_MS = 50;
/** Milliseconds without reuse after the upstream has sent bytes that belong to no response. */
const DISTRUST_MS = 60_000;

export class UpstreamPool implements UpstreamLinks, ConnectionOwner {
  readonly queue: StreamQueue;
  readonly #all = new DeadlineSweep<UpstreamConnection>(SWEEP_MS);
  /** The most recently used one is taken first, so that surplus ones time out. */
  readonly #idle: UpstreamConnection[] = [];
  /**
   * Those that have just answered rest, as bytes that follow the response may still be on their way. These wake at the end of
   * this turn of the event loop: the sockets have been read since they began to rest.
   */
  #wakeNow: UpstreamConnection[] = [];
  /** These wake at the end of the next turn. */
  #wakeNext: UpstreamConnection[] = [];
  #retired = false;
  /** Until when requests that cannot be repeated get new connections, in milliseconds of `performance.now()`. */
  #freshUntil = Number.NEGATIVE_INFINITY;
  /** Until when all requests do. */
  #distrustUntil = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly endpoint: GatewayEndpoint,
    private readonly limits: UpstreamLimits,
  ) {
    this.queue = new StreamQueue(limits.streamWait);
  }

  take(from: ClientInfo, repeatable: boolean): UpstreamConnection {
    const idle = this.#reusable(from, repeatable);
    if (!idle) return this.takeNew(from);
    idle.usedBy(from);
    return idle;
  }

  /** A connection with a PROXY header takes requests of that client's connection only. */
  #reusable({ address, proxyHeader }: ClientInfo, repeatable: boolean): UpstreamConnection | undefined {
    const idle = this.#idle;
    const isFit = ({ from, isCrowded }: UpstreamConnection) => !isCrowded && (!proxyHeader || from.address === address);
    const at = idle.findLastIndex(isFit);
    const connection = idle[at];
    if (!connection || !(repeatable || this.#isLive(connection))) return undefined;
    return at === idle.length - 1 ? idle.pop() : idle.splice(at, 1)[0];
  }

  takeNew(from: ClientInfo): UpstreamConnection {
    const connection = new UpstreamConnection(this.endpoint, this.limits, from, this);
    this.#all.add(connection);
    return connection;
  }

  idle(connection: UpstreamConnection, hadBody: boolean): void {
    if (this.#retired || turnTime() < this.#distrustUntil) return void connection.abort();
    if (!hadBody) return void setTimeout(() => this.#wake(connection), QUIET_MS).unref();
    if (this.#wakeNow.length + this.#wakeNext.length === 0) setImmediate(endTurn, this);
    this.#wakeNext.push(connection);
  }

  takeIdleStream(): ByteChannel | null {
    const connection = this.#idle.at(-1);
    if (connection === undefined) return null;
    if (this.#isLive(connection)) return connection.release();
    // Frees the stream instead.
    connection.abort();
    return null;
  }

  closedEarly(idleTime: number): void {
    if (idleTime < STALE_AFTER) this.#freshUntil = turnTime() + FRESH_MS;
  }

  sentLateBytes(): void {
    this.#distrustUntil = turnTime() + DISTRUST_MS;
    this.#closeIdle();
  }

  remove(connection: UpstreamConnection): void {
    if (!this.#all.delete(connection)) return;
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  retire(): void {
    this.#retired = true;
    this.#closeIdle();
  }

  destroy(reason: Error): void {
    for (const connection of [...this.#all]) connection.fail(reason);
  }

  #closeIdle(): void {
    for (const connection of [...this.#all]) if (connection.isIdle) connection.abort();
  }

  /** Whether a request that cannot be repeated may use an idle connection. */
  #isLive({ idleTime }: UpstreamConnection): boolean {
    return idleTime < STALE_AFTER && turnTime() >= this.#freshUntil;
  }

  /** Wakes all that have rested for a whole turn; together, as that costs less than one by one. */
  endTurn(): void {
    const awake = this.#wakeNow;
    this.#wakeNow = this.#wakeNext;
    this.#wakeNext = [];
    if (this.#wakeNow.length > 0) setImmediate(endTurn, this);
    for (const connection of awake) this.#wake(connection);
  }

  #wake(connection: UpstreamConnection): void {
    if (!connection.isIdle) return;
    this.#idle.push(connection);
    this.queue.retry();
  }
}

function endTurn(pool: UpstreamPool): void {
  pool.endTurn();
}
