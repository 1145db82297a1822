import { Transform, type TransformCallback } from 'node:stream';
import type { SharedRate } from '../../../lib/bandwidth.ts';

/** Passes bytes on at a rate that connections share. */
export class LimitedStream extends Transform {
  #giveUp = () => {};

  constructor(private readonly rate: SharedRate) {
    super({ highWaterMark: rate.turnBytes });
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const piece = chunk.subarray(0, this.rate.turnBytes);
    this.#giveUp = this.rate.take(piece.length, () => {
      if (this.destroyed) return;
      this.push(piece);
      if (piece.length === chunk.length) done();
      else this._transform(chunk.subarray(piece.length), _encoding, done);
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#giveUp();
    done(error);
  }
}
