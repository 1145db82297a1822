import type { ByteChannel } from '../../../agent-protocol/byte-channel.ts';
import { hostOf } from '../../../lib/network/ip-address.ts';
import { DeadlineSweep } from '../../../lib/time/deadline.ts';
import { turnTime } from '../../../lib/time/loop-turn.ts';
import { type ClientInfo, type GatewayEndpoint, StreamsExhausted } from '../../endpoints/online-endpoint.ts';
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

/**
 * Milliseconds without an answer on a new connection after which idle ones are closed: devices that serve one connection at a
 * time wait for its end.
 */
const STARVING_MS = 200;
/** Milliseconds after which an answer would have come, if that had helped; and without another attempt, if it has not. */
const RELIEF_MS = 1_000;
const NO_RELIEF_MS = 60_000;
/** Milliseconds for which an upstream that has refused a new connection gets no more than it had. */
const LEARNT_MS = 60_000;

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
  /** Connections with a stream, and those that were upgraded. */
  #open = 0;
  /** The most connections that the upstream has borne lately, and until when that counts. */
  #learnt = { limit: Number.POSITIVE_INFINITY, until: Number.NEGATIVE_INFINITY };
  /** By connection of a client that has signed in on one of these. */
  readonly #bound = new WeakMap<object, UpstreamConnection>();
  /** New connections without an answer; the oldest is first. */
  readonly #unanswered = new Set<UpstreamConnection>();
  /** When idle connections were last closed for one of these, and until when that is not tried again. */
  #relievedAt = Number.NEGATIVE_INFINITY;
  #noReliefUntil = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly endpoint: GatewayEndpoint,
    private readonly limits: UpstreamLimits,
  ) {
    this.queue = new StreamQueue(limits.streamWait);
  }

  get isStalled(): boolean {
    return this.endpoint.isStalled ?? false;
  }

  take(from: ClientInfo, repeatable: boolean): UpstreamConnection {
    const idle = this.#reusable(from, repeatable);
    if (!idle) return this.takeNew(from);
    idle.usedBy(from);
    return idle;
  }

  /** A connection with a PROXY header takes requests of that client's connection only, as does one on which it has signed in. */
  #reusable(
    { address, proxyHeader, connection: client }: ClientInfo,
    repeatable: boolean,
  ): UpstreamConnection | undefined {
    const idle = this.#idle;
    const own = this.#boundOf(client);
    const isFit = ({ from, isCrowded, boundTo }: UpstreamConnection) =>
      boundTo === null && !isCrowded && (!proxyHeader || from.address === address);
    const at = own === undefined ? idle.findLastIndex(isFit) : idle.indexOf(own);
    const connection = idle[at];
    if (!connection || !(repeatable || own !== undefined || this.#isLive(connection))) return undefined;
    return at === idle.length - 1 ? idle.pop() : idle.splice(at, 1)[0];
  }

  #boundOf(client: object | undefined): UpstreamConnection | undefined {
    return client && this.#bound.get(client);
  }

  takeNew(from: ClientInfo): UpstreamConnection {
    const connection = new UpstreamConnection(this.limits, from, this);
    this.#all.add(connection);
    return connection;
  }

  waitsForRequests({ connection }: ClientInfo, limit: number): boolean {
    return this.#boundOf(connection) !== undefined || this.#open >= this.#limit(limit);
  }

  open(connection: UpstreamConnection, limit: number): ByteChannel {
    const { from } = connection;
    const own = this.#boundOf(from.connection);
    if (own !== undefined && own !== connection) return this.#takeOver(connection, own);
    if (this.#open < this.#limit(limit)) {
      try {
        const channel = this.endpoint.openChannel(from);
        this.#open += 1;
        this.#unanswered.add(connection);
        return channel;
      } catch (error) {
        if (!(error instanceof StreamsExhausted)) throw error;
      }
    }
    // A stream with a PROXY header belongs to one client.
    const idle = from.proxyHeader ? undefined : this.#idle.findLast(({ boundTo }) => boundTo === null);
    if (idle !== undefined && this.#isLive(idle)) return this.#takeOver(connection, idle);
    // Frees a stream instead.
    (idle ?? this.#idle.at(-1))?.abort();
    throw new StreamsExhausted();
  }

  #limit(configured: number): number {
    const { limit, until } = this.#learnt;
    return turnTime() < until ? Math.min(limit, configured) : configured;
  }

  /** Gives a connection the stream of one that is idle. */
  #takeOver(connection: UpstreamConnection, idle: UpstreamConnection): ByteChannel {
    const at = this.#idle.indexOf(idle);
    const channel = at === -1 ? null : idle.release();
    if (channel === null) throw new StreamsExhausted();
    connection.reused = true;
    channel.usedBy?.(hostOf(connection.from.address));
    if (idle.boundTo !== null) this.bind(connection);
    return channel;
  }

  bind(connection: UpstreamConnection): void {
    const client = connection.from.connection;
    if (client === undefined) return;
    // Its state ends with the client's connection: another client could have the same address then.
    if (!this.#bound.has(client)) client.once('close', () => this.#release(client));
    connection.boundTo = client;
    this.#bound.set(client, connection);
  }

  #release(client: object): void {
    const own = this.#bound.get(client);
    this.#bound.delete(client);
    if (own?.isIdle) own.abort();
  }

  answered(connection: UpstreamConnection): void {
    if (!this.#unanswered.delete(connection)) return;
    // It has helped.
    if (connection.sentAt < this.#relievedAt) this.#relievedAt = Number.NEGATIVE_INFINITY;
  }

  upgradeEnded(): void {
    this.#open -= 1;
    this.queue.retry();
  }

  refusedNew(): boolean {
    if (this.#open === 0) return false;
    this.#learnt = { limit: this.#open, until: turnTime() + LEARNT_MS };
    return true;
  }

  relieve(): void {
    if (this.#idle.length === 0) return;
    const [oldest] = this.#unanswered;
    const now = turnTime();
    if (oldest === undefined || now - oldest.sentAt < STARVING_MS || now < this.#noReliefUntil) return;
    const isInVain = oldest.sentAt < this.#relievedAt && now - this.#relievedAt > RELIEF_MS;
    if (isInVain) this.#noReliefUntil = now + NO_RELIEF_MS;
    else {
      this.#relievedAt = now;
      for (const connection of [...this.#idle]) if (connection.boundTo === null) connection.abort();
    }
  }

  idle(connection: UpstreamConnection, hadBody: boolean): void {
    if (this.#retired || turnTime() < this.#distrustUntil) return void connection.abort();
    if (!hadBody) return void setTimeout(() => this.#wake(connection), QUIET_MS).unref();
    if (this.#wakeNow.length + this.#wakeNext.length === 0) setImmediate(endTurn, this);
    this.#wakeNext.push(connection);
  }

  closedEarly(idleTime: number): void {
    if (idleTime < STALE_AFTER) this.#freshUntil = turnTime() + FRESH_MS;
  }

  sentLateBytes(): void {
    this.#distrustUntil = turnTime() + DISTRUST_MS;
    this.#closeIdle();
  }

  remove(connection: UpstreamConnection, hadStream: boolean): void {
    if (!this.#all.delete(connection)) return;
    this.#unanswered.delete(connection);
    const { boundTo } = connection;
    if (boundTo !== null && this.#bound.get(boundTo) === connection) this.#bound.delete(boundTo);
    if (hadStream) this.#open -= 1;
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
    this.relieve();
  }
}

function endTurn(pool: UpstreamPool): void {
  pool.endTurn();
}
