import { FairQueue } from '../../lib/fair-queue.ts';
import type { ProcessorTime } from './processor-time.ts';

/**
 * Milliseconds of work that the policies of one payer have in the thread pool at a time. Its four threads also read files and
 * find names, for everybody, and take work in the order in which it arrives.
 */
const SHARE_MS = 2;

interface Waiting {
  readonly ms: number;
  readonly begin: () => void;
}

/**
 * A payer's share of libuv's thread pool, which checks signatures and decompresses bodies. The networks of its clients take
 * turns.
 */
export class PoolShare {
  /** As many as there are requests of clients. */
  readonly #waiting = new FairQueue<Waiting>(Number.POSITIVE_INFINITY);
  #underWay = 0;

  /**
   * Charges for work and waits until it may begin; what follows must call {@link leave}.
   *
   * @param ms what the work takes in a thread
   * @param time the payer's, or the share of a client network in it
   */
  async enter(ms: number, time: ProcessorTime): Promise<void> {
    time.spend(ms);
    if (this.#waiting.size === 0 && this.#hasRoom(ms)) this.#underWay += ms;
    else await new Promise<void>((begin) => void this.#waiting.add(time.network, { ms, begin }));
  }

  /** @param ms as for {@link enter} */
  leave(ms: number): void {
    this.#underWay -= ms;
    for (let { next } = this.#waiting; next && this.#hasRoom(next.ms); { next } = this.#waiting) {
      this.#waiting.take();
      this.#underWay += next.ms;
      next.begin();
    }
  }

  /** What takes longer than the share has it to itself. Fractions of milliseconds do not add up to zero again. */
  #hasRoom(ms: number): boolean {
    return this.#underWay < 1e-6 || this.#underWay + ms <= SHARE_MS;
  }
}

const shares = new WeakMap<ProcessorTime, PoolShare>();

/** @param time the payer's, or a share in it */
export function poolShareOf(time: ProcessorTime): PoolShare {
  const { whole } = time;
  const share = shares.get(whole) ?? new PoolShare();
  shares.set(whole, share);
  return share;
}
