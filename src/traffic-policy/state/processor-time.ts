import { setImmediate as nextTurn } from 'node:timers/promises';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { runFor, type Stepwise } from '../../lib/stepwise.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { currentTurn, hasTimeForWork } from '../../lib/time/loop-turn.ts';
import { TokenBucket } from '../../lib/time/token-bucket.ts';

/** The time that policies may take at once, when they took little before. As much can be owed. */
const RESERVE_MS = 1000;

/** The time that policies may take in one turn of the event loop before their next request has to wait. */
const TURN_MS = 10;

type ProcessorClock = Pick<Clock, 'now' | 'sleep' | 'after'>;

/** Limits the processor time of the policies of one authtoken: everything in the process waits while they run. */
export class ProcessorTime {
  readonly #bucket: TokenBucket;
  #isRunning = false;
  #turn = -1;
  #turnMs = 0;

  /** @param share of one processor core that is refilled, 0 to 1 */
  constructor(
    share: number,
    private readonly clock: ProcessorClock,
  ) {
    this.#bucket = new TokenBucket({ burst: RESERVE_MS, perMs: share, maxDebt: RESERVE_MS }, clock.now());
  }

  /** Runs work and charges for the time it takes. Work within work is charged once. */
  run<T>(work: () => T): T {
    if (this.#isRunning) return work();
    this.#isRunning = true;
    const start = this.clock.now();
    try {
      return work();
    } finally {
      this.#isRunning = false;
      const now = this.clock.now();
      this.#charge(now - start, now);
    }
  }

  /** Runs work in several turns of the event loop, while enough time is left for requests. */
  async runInTurns<T>(work: Stepwise<T>): Promise<T> {
    for (;;) {
      const waitMs = this.#refillMs(RESERVE_MS / 2);
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

  /** Milliseconds until it is no longer spent; 0 when it is not. */
  get waitMs(): number {
    return this.#refillMs(0);
  }

  /** Milliseconds until more than this is left; 0 when it is. */
  #refillMs(level: number): number {
    const now = this.clock.now();
    return this.#bucket.left(now) > level ? 0 : Math.ceil(this.#bucket.waitMs(level + 1, now));
  }

  get shouldYield(): boolean {
    return (this.#turnMs > TURN_MS && this.#turn === currentTurn()) || !hasTimeForWork();
  }

  #charge(ms: number, now: number): void {
    this.#bucket.take(ms, now);
    const turn = currentTurn();
    if (turn !== this.#turn) this.#turnMs = 0;
    this.#turn = turn;
    this.#turnMs += ms;
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
