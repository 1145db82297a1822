import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { withDeadline, withOwnSignal, withSignal } from '../../lib/time/deadline.ts';
import type { GatewayLink, GatewayNode, GatewaySession } from './gateway-link.ts';

/** Until it can be had: gateways may not reach each other's addresses from outside, and devices pay for what they send. */
const RETRY = { baseMs: 4_000, maxMs: 300_000 };
/** For a while after a loss: its gateway may be back in seconds, and the list may still name one that was lost, too. */
const RETRY_SOON = { baseMs: 1_000, maxMs: 4_000 };
const SOON_MS = 60_000;
/** How long a gateway may take while there is another one to try: one that is stopped accepts connections, and is silent. */
const TURN_MS = 5_000;
/** How long the first one may be away before the one in reserve is started. */
const RESERVE_MS = 8_000;
const ASK_DEADLINE_MS = 10_000;
/** How long both sessions may be at one gateway, so that the newer one has all endpoints when the other moves on. */
const SETTLE_MS = 10_000;
/** How long clients may take to get what they have under way when it moves. */
const MOVE_MS = 30_000;

/**
 * Keeps a session at another gateway of a cluster than the first one's, which tells where there are others. It outlives the
 * first one: with either, the device is online.
 */
export class SecondSession {
  readonly #stopping = new AbortController();
  #first: GatewaySession | null = null;
  #session: GatewaySession | null = null;
  #gateway: string | null = null;
  /** Gateways for a session in reserve; null before the first one has said where they are. */
  #known: readonly GatewayNode[] | null = null;
  #running: Promise<void> | null = null;
  #wake = () => {};

  constructor(
    private readonly options: {
      connectTo: NonNullable<GatewayLink['connectTo']>;
      joined(session: GatewaySession): void;
      left(session: GatewaySession): void;
      /** It is only started when the first one is lost, and ends when that is back. */
      isReserve?: () => boolean;
      clock: Clock;
      log: Log;
    },
  ) {}

  get session(): GatewaySession | null {
    return this.#session;
  }

  get #isReserve(): boolean {
    return this.options.isReserve?.() === true;
  }

  /** `host:port` of the gateway with the session; null while there is none. */
  get gateway(): string | null {
    return this.#session && this.#gateway;
  }

  /** @param first the session that is online now; null while offline */
  follow(first: GatewaySession | null): void {
    this.#first = first;
    this.#wake();
    if (first?.node) this.#running ??= this.#run();
  }

  /** To be called when it is in reserve from now on, or no longer. */
  look(): void {
    this.#wake();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#session?.close();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock } = this.options;
    const { signal } = this.#stopping;
    let failures = 0;
    let lostAt = Number.NEGATIVE_INFINITY;
    try {
      for (;;) {
        signal.throwIfAborted();
        const session = await this.#next(failures === 0, signal);
        const began = clock.now();
        if (session !== null) await this.#use(session, signal);
        const now = clock.now();
        const wasUseful = session !== null && now - began >= RETRY.baseMs;
        if (wasUseful) lostAt = now;
        failures = wasUseful ? 0 : failures + 1;
        const policy = now - lostAt < SOON_MS ? RETRY_SOON : RETRY;
        await clock.sleep(backoffDelay(failures, policy, clock.random), signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #next(logs: boolean, signal: AbortSignal): Promise<GatewaySession | null> {
    // The first one is asked once for each of its sessions, while it can say.
    while (this.#isReserve && (this.#first !== null || this.#known === null)) {
      const first = await this.#firstOnline(signal);
      this.#known = await this.#others(first);
      while (this.#first === first && this.#isReserve) await this.#change(signal);
      // Most of the time it is back at once, and costs nothing more.
      if (this.#first === null) await this.options.clock.sleep(RESERVE_MS, signal);
    }
    const nodes = this.#isReserve && this.#known ? this.#known : await this.#others(await this.#firstOnline(signal));
    return this.#open(nodes, logs, signal);
  }

  async #firstOnline(signal: AbortSignal): Promise<GatewaySession> {
    for (;;) {
      if (this.#first?.node) return this.#first;
      await this.#change(signal);
    }
  }

  /** Resolves when the first session has changed, or whether this one is in reserve. */
  #change(signal: AbortSignal): Promise<void> {
    return withOwnSignal(signal, (own) => {
      return new Promise((resolve, reject) => {
        this.#wake = resolve;
        own.addEventListener('abort', () => reject(own.reason));
      });
    });
  }

  /** Those of which the first session's gateway knows; none when it does not say. */
  async #others(first: GatewaySession): Promise<GatewayNode[]> {
    const { clock, log } = this.options;
    try {
      return await withDeadline(others(first), 'asking for other gateways', ASK_DEADLINE_MS, undefined, clock);
    } catch (error) {
      log.debug({ reason: messageOf(error) }, 'no second session yet');
      return [];
    }
  }

  /** @returns null when there is no other gateway, or none can be reached */
  async #open(nodes: readonly GatewayNode[], logs: boolean, signal: AbortSignal): Promise<GatewaySession | null> {
    const { clock } = this.options;
    // From any on, so that a fleet does not go to one.
    const start = Math.floor(clock.random() * nodes.length);
    const inTurn = [...nodes.slice(start), ...nodes.slice(0, start)];
    for (const node of inTurn) {
      const session = await this.#connect(node, { logs, isLast: node === inTurn.at(-1) }, signal);
      if (session !== null) return session;
    }
    return null;
  }

  async #connect(
    node: GatewayNode,
    { logs, isLast }: { logs: boolean; isLast: boolean },
    signal: AbortSignal,
  ): Promise<GatewaySession | null> {
    const { connectTo, clock, log } = this.options;
    const { address: gateway } = node;
    const connect = (until: AbortSignal) => connectTo(node, until);
    try {
      const session = await (isLast
        ? connect(signal)
        : withSignal(connect, 'starting a session', TURN_MS, signal, clock));
      this.#gateway = gateway;
      log.info({ gateway }, 'second session online');
      return session;
    } catch (error) {
      signal.throwIfAborted();
      const reason = messageOf(error);
      if (logs) log.warn({ gateway, reason }, 'no second session; retrying');
      else log.debug({ gateway, reason }, 'no second session yet');
      return null;
    }
  }

  async #use(session: GatewaySession, signal: AbortSignal): Promise<void> {
    const { joined, left, log } = this.options;
    if (signal.aborted) return session.close();
    this.#session = session;
    joined(session);
    const reason = await withOwnSignal(signal, (over) => {
      this.#moveFromFirst(session, over).catch((error: unknown) => {
        if (!over.aborted) log.error({ err: error }, 'second session not moved');
      });
      return session.lost;
    });
    this.#session = null;
    left(session);
    if (!signal.aborted) log.info({ reason }, 'second session lost');
  }

  /** Ends the session when the first one has come to the same gateway, and there is another one. */
  async #moveFromFirst(session: GatewaySession, signal: AbortSignal): Promise<void> {
    const { clock } = this.options;
    for (;;) {
      const first = this.#first;
      if (this.#isReserve) {
        await this.#firstOnline(signal);
        await clock.sleep(SETTLE_MS, signal);
        if (this.#first !== null) return session.close(MOVE_MS);
        continue;
      }
      if (first?.node && first.node.id === session.node?.id) {
        await clock.sleep(SETTLE_MS, signal);
        const nodes = await others(first).catch(() => []);
        if (this.#first === first && nodes.length > 0) return session.close(MOVE_MS);
        if (this.#first === first) continue;
      } else {
        await this.#change(signal);
      }
    }
  }
}

function others(session: GatewaySession) {
  return session.node?.others() ?? Promise.resolve([]);
}
