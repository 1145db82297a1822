import type { Socket } from 'node:net';
import type { Clock } from '../../lib/time/clock.ts';
import { withDeadline } from '../../lib/time/deadline.ts';
import type { Connector } from '../connectors/connector.ts';
import type { AbandonedConnections } from './abandoned-connections.ts';
import type { HttpFindings } from './upstream-check.ts';
import { type CheckedUpstream, isRefusal, type UpstreamHealth, type UpstreamHealths } from './upstream-health.ts';

/** Checks upstreams now, for somebody who looks. */
export type UpstreamChecks = Pick<UpstreamMonitor, 'refresh'>;

/** Checks come in batches: a device that sleeps between them needs less power. */
const BATCH_MS = 15_000;
/** Batches that check every upstream once. */
const BATCHES = 4;
const MAX_BATCH = 64;
/** Traffic or a check that is younger than this makes another check superfluous. */
const FRESH_MS = 25_000;
/** The same while somebody looks, who may just have started the upstream. */
const FRESH_FOR_READER_MS = 3_000;
/** The same once a client has failed: it retries. */
const FRESH_FOR_CLIENT_MS = 1_000;
/** The same while clients are connected. */
const FRESH_IN_USE_MS = 120_000;
const READER_WAIT_MS = 300;

/**
 * Checks upstreams without traffic by a connection that carries no data: each one every 30 to 60 seconds, with more than 256
 * of them less often. The first connection to an upstream of an http tunnel that works (again) carries a request.
 */
export class UpstreamMonitor {
  readonly #stopped = new AbortController();
  readonly #checks = new Map<UpstreamHealth, Promise<void>>();

  constructor(
    private readonly options: {
      healths: UpstreamHealths;
      /** Connects to an upstream as a tunnel would; has a deadline. */
      connect: (upstream: CheckedUpstream) => Promise<Socket>;
      /** Sends a request over such a connection, which it uses up; has a deadline. */
      request: (socket: Socket, upstream: UpstreamHealth) => Promise<HttpFindings>;
      /** What the SDK's own connections to upstreams tell. */
      abandoned: Pick<AbandonedConnections, 'look' | 'lookForClients'>;
      /** Takes the connections of an upstream through the agent, which sees and reaches more than the SDK. */
      relay: (upstream: UpstreamHealth) => Promise<void>;
      /** Without a session, no clients can arrive, and checks would only wake the device. */
      connector: Pick<Connector, 'isOnline'>;
      clock: Clock;
    },
  ) {}

  start(): void {
    this.#loop().catch(() => {}); // aborted by stop()
  }

  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Checks what was not checked in the last seconds, and waits shortly for the results.
   *
   * @param only omitted: all upstreams
   */
  async refresh(only?: UpstreamHealth): Promise<void> {
    if (!this.options.connector.isOnline) return;
    if (only === undefined) this.options.abandoned.look();
    const among = only ? [only] : this.options.healths.values();
    const checks = this.#due(among, FRESH_FOR_READER_MS, MAX_BATCH).map((health) => this.#check(health, true));
    if (checks.length === 0) return;
    await withDeadline(Promise.all(checks), 'checking upstreams', READER_WAIT_MS).catch(() => {}); // still old, and dated
  }

  /** The SDK could not connect to an upstream for a client, and does not say to which one. */
  clientFailed(): void {
    const direct = this.options.healths.values().filter(({ isDirect }) => isDirect);
    for (const health of oldest(direct, FRESH_FOR_CLIENT_MS, MAX_BATCH)) void this.#check(health, false);
  }

  async #loop(): Promise<void> {
    const { clock, healths, connector } = this.options;
    for (;;) {
      await clock.sleep(BATCH_MS, this.#stopped.signal);
      if (!connector.isOnline) continue;
      this.options.abandoned.look();
      const size = Math.min(MAX_BATCH, Math.ceil(healths.size / BATCHES));
      for (const health of this.#due(healths.values(), FRESH_MS, size)) void this.#check(health, false);
    }
  }

  /** Those to check. What clients are connected to and works gets few checks: it may have no place for another connection. */
  #due(among: readonly UpstreamHealth[], olderThanMs: number, max: number): UpstreamHealth[] {
    const isConnected = this.#lookForClients();
    const isInUse = (health: UpstreamHealth) =>
      health.status.state === 'answers' && health.ageMs < FRESH_IN_USE_MS && isConnected(health);
    return oldest(among, olderThanMs, among.length)
      .filter((health) => !isInUse(health))
      .slice(0, max);
  }

  #check(health: UpstreamHealth, forReader: boolean): Promise<void> {
    const running = this.#checks.get(health);
    if (running) return running;
    const check = this.#try(health, forReader).finally(() => this.#checks.delete(health));
    this.#checks.set(health, check);
    return check;
  }

  async #try(health: UpstreamHealth, forReader: boolean): Promise<void> {
    const { connect, request, relay, connector } = this.options;
    try {
      const socket = await connect(health);
      if (health.reachedAt(socket.remoteAddress)) await relay(health);
      const asks = health.asksRequest(forReader);
      health.answered();
      if (!asks) socket.destroy();
      else if (health.spoke(await request(socket, health))) await relay(health);
    } catch (error) {
      // A session that ended meanwhile may have taken the network with it.
      if (!connector.isOnline || this.#stopped.signal.aborted) return;
      // An upstream that refuses others than those that are connected has no place for them.
      if (health.status.state === 'answers' && isRefusal(error) && this.#lookForClients()(health)) health.answered();
      else health.failed(error, false);
    }
  }

  #lookForClients(): (health: UpstreamHealth) => boolean {
    const bySdk = this.options.abandoned.lookForClients();
    return (health) => health.open > 0 || bySdk(health);
  }
}

function oldest(healths: readonly UpstreamHealth[], olderThanMs: number, max: number): UpstreamHealth[] {
  return healths
    .filter(({ ageMs }) => ageMs >= olderThanMs)
    .sort((a, b) => b.ageMs - a.ageMs || 0)
    .slice(0, max);
}
