import { setImmediate as nextTurn } from 'node:timers/promises';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';
import { TokenBucket } from '../../lib/time/token-bucket.ts';

/** Bytes of requests that an authtoken may send per millisecond. They take some quarter of a processor. */
const BYTES_PER_MS = 32_768;
/** What a request costs besides its bytes. */
const REQUEST_BYTES = 16_384;
/** The share of a processor that requests may take, where they take more than their bytes say. */
const SHARE = 0.25;
/** How long an authtoken may exceed that after a pause: an agent binds its thousands of endpoints at once. */
const BURST_MS = 10_000;
const MAX_REMEMBERED = 10_000;

interface Line {
  last: Promise<void>;
  /** Milliseconds of its share. */
  time: TokenBucket;
}

/**
 * Shares the processor among authtokens: in each turn of the event loop, one request of each is handled. Authtokens that
 * send too much have to wait; SDKs send the next request when they have the answer to the last.
 */
export class RequestTurns {
  readonly #lines = new BoundedMap<string, Line>(MAX_REMEMBERED);

  constructor(
    private readonly clock: Clock = systemClock,
    private readonly burstMs = BURST_MS,
  ) {}

  /**
   * Handles a request in its turn, in the order of the calls. What it takes longer than its bytes say, later ones of the
   * payer wait.
   * @param payer id of the authtoken, or the network of an agent that has not authenticated
   * @param handle is measured up to its first wait
   * @param isOver whether nobody waits for the answer any more: the request takes no turn then, and {@link RpcError} is
   * thrown
   */
  async serve<T>(
    payer: string,
    size: number,
    handle: () => Promise<T>,
    isOver: () => boolean = () => false,
  ): Promise<T> {
    const time = () => new TokenBucket({ burst: this.burstMs, perMs: 1 }, this.clock.now());
    const line = this.#lines.get(payer) ?? { last: Promise.resolve(), time: time() };
    line.last = line.last.then(() => (isOver() ? undefined : this.#turn(line, size)));
    this.#lines.set(payer, line);
    await line.last;
    if (isOver()) throw new RpcError('ERR_NGROK_741', 'the session has ended');
    const start = this.clock.now();
    try {
      return handle();
    } finally {
      const now = this.clock.now();
      line.time.take(Math.max(0, (now - start) / SHARE - priceOf(size)), now);
    }
  }

  async #turn(line: Line, size: number): Promise<void> {
    await nextTurn();
    const now = this.clock.now();
    line.time.take(priceOf(size), now);
    const waitMs = line.time.waitMs(0, now);
    if (waitMs > 0) await this.clock.sleep(waitMs);
  }
}

/** Milliseconds that a request takes from the allowance at least. */
function priceOf(size: number): number {
  return (size + REQUEST_BYTES) / BYTES_PER_MS;
}
