import { setImmediate as nextTurn } from 'node:timers/promises';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { runFor, type Stepwise } from '../../lib/stepwise.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { currentTurn, hasTimeForWork } from '../../lib/time/loop-turn.ts';
import { TokenBucket } from '../../lib/time/token-bucket.ts';

/** The time that policies may take at once, when they took little before. As much can be owed. */
const RESERVE_MS = 1000;

/** The time that policies may take in one turn of the event loop before their next request has to wait. */
const TURN_MS = 10;

/** Client networks of an authtoken that are known. Few of them take time that matters. */
const MAX_NETWORKS = 200;
/** What a network can have taken lately, and be forgotten all the same. */
const NEGLIGIBLE_MS = 10;

type ProcessorClock = Pick<Clock, 'now' | 'sleep' | 'after'>;

/**
 * Limits the processor time of the policies of one authtoken: everything in the process waits while they run.
 *
 * Each client network has a share, which matters once nothing is left. What can be owed then is for the networks that took
 * less than that lately. So one network alone can take everything, and still leaves something for all others.
 */
export class ProcessorTime {
  readonly #whole: ProcessorTime;
  readonly #bucket: TokenBucket;
  #shares: BoundedMap<string, ProcessorTime> | null = null;
  #isRunning = false;
  #turn = -1;
  #turnMs = 0;
  /** What this share took lately. It fades: who takes as much as is refilled has taken the reserve lately. */
  #used = 0;
  #usedAt = 0;

  /**
   * @param share of one processor core that is refilled, 0 to 1
   * @param whole the time that this one is a share of; left out: none
   * @param network of the clients whose share it is
   */
  constructor(
    private readonly share: number,
    private readonly clock: ProcessorClock,
    whole?: ProcessorTime,
    readonly network = '',
  ) {
    this.#whole = whole ?? this;
    const rate = { burst: RESERVE_MS, perMs: share, maxDebt: RESERVE_MS };
    this.#bucket = whole === undefined ? new TokenBucket(rate, clock.now()) : whole.#bucket;
  }

  /** The share of a client's network. */
  shareOf(client: { readonly clientIp: string; network?: string }): ProcessorTime {
    client.network ??= clientNetwork(client.clientIp);
    return this.#shares?.get(client.network) ?? this.#newShare(client.network);
  }

  /** What this one is a share of; itself when it is the whole. */
  get whole(): ProcessorTime {
    return this.#whole;
  }

  /** Runs work and charges for the time it takes. Work within work is charged once. */
  run<T>(work: () => T): T {
    const whole = this.#whole;
    if (whole.#isRunning) return work();
    whole.#isRunning = true;
    const start = this.clock.now();
    try {
      return work();
    } finally {
      whole.#isRunning = false;
      const now = this.clock.now();
      this.#charge(now - start, now);
    }
  }

  /** Runs work as soon as time is left, in a turn of the event loop that has time for it. */
  async runWhenLeft<T>(work: () => Promise<T> | T): Promise<T> {
    for (let { waitMs } = this; waitMs > 0; { waitMs } = this) await this.clock.sleep(waitMs);
    while (this.shouldYield) await nextTurn();
    return this.run(work);
  }

  /** Runs work in several turns of the event loop, while enough time is left for requests. */
  async runInTurns<T>(work: Stepwise<T>): Promise<T> {
    for (;;) {
      const waitMs = this.#refillMs(RESERVE_MS / 2, this.clock.now());
      if (waitMs > 0) await this.clock.sleep(waitMs);
      const step = this.run(() => runFor(work, TURN_MS / 2, () => this.clock.now()));
      if (step.done) return step.value;
      do await nextTurn();
      while (!hasTimeForWork());
    }
  }

  /** Charges for work that was not measured. */
  spend(ms: number): void {
    this.#charge(ms, this.clock.now());
  }

  /** Does work that takes `ms`, and is charged, as soon as time is left. */
  whenLeft(ms: number, work: () => void): void {
    const { waitMs } = this;
    if (waitMs > 0) this.clock.after(waitMs, () => this.whenLeft(ms, work));
    else {
      this.spend(ms);
      work();
    }
  }

  get isSpent(): boolean {
    return this.waitMs > 0;
  }

  /** Milliseconds until it is no longer spent, at most; 0 when it is not. */
  get waitMs(): number {
    const now = this.clock.now();
    const waitMs = this.#refillMs(0, now);
    return waitMs === 0 || this.#usedLately(now) < this.#bucket.left(now) + RESERVE_MS ? 0 : waitMs;
  }

  /** Milliseconds until more than this is left; 0 when it is. */
  #refillMs(level: number, now: number): number {
    return this.#bucket.left(now) > level ? 0 : Math.ceil(this.#bucket.waitMs(level + 1, now));
  }

  get shouldYield(): boolean {
    const whole = this.#whole;
    return (whole.#turnMs > TURN_MS && whole.#turn === currentTurn()) || !hasTimeForWork();
  }

  #usedLately(now: number): number {
    return this.#used * Math.exp(((this.#usedAt - now) * this.share) / RESERVE_MS);
  }

  #charge(ms: number, now: number): void {
    const whole = this.#whole;
    this.#used = this.#usedLately(now) + ms;
    this.#usedAt = now;
    this.#bucket.take(ms, now);
    const turn = currentTurn();
    if (turn !== whole.#turn) whole.#turnMs = 0;
    whole.#turn = turn;
    whole.#turnMs += ms;
  }

  #newShare(network: string): ProcessorTime {
    this.#shares ??= new BoundedMap(MAX_NETWORKS);
    if (this.#shares.size === MAX_NETWORKS) this.#forgetOne(this.#shares);
    const share = new ProcessorTime(this.share, this.clock, this, network);
    this.#shares.set(network, share);
    return share;
  }

  #forgetOne(shares: Map<string, ProcessorTime>): void {
    const now = this.clock.now();
    for (const [network, share] of shares) {
      if (share.#usedLately(now) > NEGLIGIBLE_MS) continue;
      shares.delete(network);
      return;
    }
  }
}

const MAX_OWNERS = 10_000;

export class ProcessorTimes {
  readonly #byOwner = new BoundedMap<string, ProcessorTime>(MAX_OWNERS);

  constructor(
    private readonly share: number,
    private readonly clock: ProcessorClock,
  ) {}

  /** @param owner id of an authtoken, or of what else has policies */
  of(owner: string): ProcessorTime {
    const time = this.#byOwner.get(owner) ?? new ProcessorTime(this.share, this.clock);
    this.#byOwner.set(owner, time);
    return time;
  }
}
