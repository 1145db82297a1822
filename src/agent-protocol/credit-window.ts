/** Rates are the most of so many samples; each takes a round trip, or `LEAST_SAMPLE_MS` on short links. */
const SAMPLES = 8;
const LEAST_SAMPLE_MS = 20;
/** A stream has its speed when the best rate has not grown by a quarter in so many samples. */
const FASTER = 1.25;
const PATIENCE = 3;

interface CreditBounds {
  /** Credit of a stream that is not bulk, in bytes. */
  least: number;
  /** Credit until the stream has its speed, at least; in bytes. */
  initial: number;
  /** Credit that may be outstanding, in bytes. */
  most: number;
  /** Received bytes that wait until they are credited. */
  step: number;
  /** Credit in bandwidth-delay products, as long as more of it makes the stream faster. */
  starting: number;
  /** The same, once more of it does not make the stream faster. */
  cruising: number;
  /** Whether a stream that gets faster all the same starts again. */
  restarts: boolean;
}

/**
 * How much credit a bulk stream should have outstanding: about what the path holds at the rate at which data arrives. More
 * would only lengthen the queue in the peer's socket, where small responses wait. The search for the rate is that of the
 * congestion control BBR (draft-cardwell-iccrg-bbr-congestion-control), on credit instead of packets.
 */
export class CreditWindow {
  target: number;
  readonly #samples: Sample[] = [];
  #bytes = 0;
  #gain: number;
  #best = 0;
  #samplesWithoutGrowth = 0;

  constructor(
    private readonly bounds: CreditBounds,
    private since: number,
  ) {
    this.target = bounds.initial;
    this.#gain = bounds.starting;
  }

  /**
   * @param roundTrip milliseconds without queues
   * @param room bytes of memory that the stream may take
   */
  receive(bytes: number, now: number, roundTrip: number, room: number): void {
    this.#bytes += bytes;
    const ms = now - this.since;
    if (ms < Math.max(roundTrip, LEAST_SAMPLE_MS)) return;
    this.#samples.push({ bytes: this.#bytes, ms });
    if (this.#samples.length > SAMPLES) this.#samples.shift();
    this.#bytes = 0;
    this.since = now;
    const { least, initial, most, step, cruising } = this.bounds;
    // What a lost packet has held up arrives at once: too much for one sample, after one with too little.
    const rate = highestRate(this.#samples, this.#gain === cruising ? 2 : 1);
    this.#start(rate);
    const wanted = this.#gain * rate * roundTrip + step;
    this.target = Math.max(least, Math.min(this.#gain === cruising ? wanted : Math.max(wanted, initial), most, room));
  }

  #start(rate: number): void {
    const { cruising } = this.bounds;
    if (this.#gain === cruising) return void this.#restart(rate);
    this.#samplesWithoutGrowth = rate > this.#best * FASTER ? 0 : this.#samplesWithoutGrowth + 1;
    if (this.#samplesWithoutGrowth === 0) this.#best = rate;
    else if (this.#samplesWithoutGrowth >= PATIENCE) this.#gain = cruising;
  }

  /** An end that is busy for a moment looks like a path that is full: less is credited, and so less arrives. */
  #restart(rate: number): void {
    const isFaster = this.bounds.restarts && rate > this.#best * FASTER;
    this.#best = isFaster ? rate : Math.min(this.#best, rate);
    if (!isFaster) return;
    this.#gain = this.bounds.starting;
    this.#samplesWithoutGrowth = 0;
  }
}

interface Sample {
  bytes: number;
  ms: number;
}

/** The highest rate over so many samples in a row, in bytes per millisecond. */
function highestRate(samples: readonly Sample[], span: number): number {
  let highest = 0;
  for (let from = 0; from <= Math.max(0, samples.length - span); from++) {
    const together = { bytes: 0, ms: 0 };
    for (const sample of samples.slice(from, from + span)) {
      together.bytes += sample.bytes;
      together.ms += sample.ms;
    }
    highest = Math.max(highest, together.bytes / together.ms);
  }
  return highest;
}

/** The largest window of a stream between a gateway and an agent of this project, in bytes. */
export const LARGEST_WINDOW = 16_777_216;
/** Another transfer on the connection may have brought TCP to its speed already. */
const INITIAL = 4_194_304;
const BOUNDS = {
  most: LARGEST_WINDOW,
  /** More than TCP's slow start needs, which doubles its rate in each round trip. */
  starting: 4,
  /** While a lost packet is sent again, what follows it waits, and credit with it: with less, the sender would stop. */
  cruising: 2,
  restarts: false,
};
/** Without data for so many round trips and milliseconds, the next data is another transfer. */
const QUIET_ROUND_TRIPS = 2;
const QUIET_MS = 100;

/** The window of a stream to a peer that supports larger ones. Unlike an SDK, it keeps all credit that it gets. */
export class GrowingWindow {
  #window: CreditWindow | null = null;
  #receivedAt = 0;

  /** @param step received bytes that wait until they are credited */
  constructor(
    private readonly least: number,
    private readonly step: number,
  ) {}

  /** How much the peer may have sent, or have left to send, before it gets credit again; in bytes. */
  get target(): number {
    return this.#window?.target ?? this.least;
  }

  /**
   * @param roundTrip milliseconds without queues; null: not known yet
   * @param room bytes of memory that the stream may take
   */
  receive(bytes: number, now: number, roundTrip: number | null, room: number): void {
    const quiet = now - this.#receivedAt - QUIET_MS;
    this.#receivedAt = now;
    if (roundTrip === null) return;
    if (this.#window === null || quiet > QUIET_ROUND_TRIPS * roundTrip) {
      const { least, step } = this;
      const initial = Math.max(least, Math.min(INITIAL, room));
      this.#window = new CreditWindow({ ...BOUNDS, least, initial, step }, now);
    }
    this.#window.receive(bytes, now, roundTrip, room);
  }
}
