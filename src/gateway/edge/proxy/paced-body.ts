import type { SharedRate } from '../../../lib/bandwidth.ts';
import type { UpstreamLink } from '../upstreams/upstream-link.ts';

/** Passes the body of a request on at a rate. It takes no more than a piece at a time. */
export class PacedBody implements Pick<UpstreamLink, 'write' | 'finishRequest'> {
  #pieces: Buffer[] = [];
  #trailers: readonly string[] | null = null;
  /** `turn`: a piece waits for it; `blocked`: the upstream has to read first. */
  #state: 'free' | 'turn' | 'blocked' | 'stopped' = 'free';
  #giveUp = () => {};

  /** @param onTaken called when the next piece may come */
  constructor(
    private readonly to: Pick<UpstreamLink, 'write' | 'finishRequest'>,
    private readonly rate: SharedRate,
    private readonly onTaken: () => void,
  ) {}

  write(bytes: Buffer): boolean {
    this.#pieces.push(bytes);
    this.#next();
    return this.#pieces.length === 0 && this.#state === 'free';
  }

  finishRequest(trailers: readonly string[]): void {
    this.#trailers = trailers;
    this.#next();
  }

  /** The upstream reads on. */
  drained(): void {
    if (this.#state === 'blocked') this.#state = 'free';
    this.#next();
  }

  /** Nothing more is sent: the connection may carry another request by now. */
  stop(): void {
    this.#giveUp();
    this.#state = 'stopped';
    this.#pieces = [];
  }

  #next(): void {
    if (this.#state !== 'free') return;
    const [first] = this.#pieces;
    if (first === undefined) {
      if (this.#trailers === null) {
        this.onTaken();
        return;
      }
      this.#state = 'stopped';
      this.to.finishRequest(this.#trailers);
      return;
    }
    const piece = first.subarray(0, this.rate.turnBytes);
    this.#state = 'turn';
    this.#giveUp = this.rate.take(piece.length, () => {
      if (this.#state === 'stopped') return;
      if (piece.length < first.length) this.#pieces[0] = first.subarray(piece.length);
      else this.#pieces.shift();
      this.#state = this.to.write(piece) ? 'free' : 'blocked';
      this.#next();
    });
  }
}
