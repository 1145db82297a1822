import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { type Bandwidth, SharedRate } from '../../lib/bandwidth.ts';

/** What all connections of a tunnel share; null: any number of bytes. */
export interface TunnelCap {
  up: SharedRate | null;
  down: SharedRate | null;
}

export function tunnelCap({ up, down }: Bandwidth): TunnelCap {
  return { up: up === null ? null : new SharedRate(up), down: down === null ? null : new SharedRate(down) };
}

type Done = (error?: Error | null) => void;

/**
 * A connection to an upstream that passes no more than its tunnel's cap allows. What may not pass yet is not read: from the
 * upstream, and from the client, whose stream has a window. So it holds a piece of each direction at most.
 *
 * It is a socket for those who use it, though it has no handle of its own.
 */
export class CappedConnection extends Socket {
  readonly #giveUp: { read: () => void; write: () => void } = { read: () => {}, write: () => {} };
  /** Called when the upstream has taken what was written. */
  #onDrain: (() => void) | null = null;
  #hasEnded = false;
  #isReading = false;
  /** Whether a part of what was read waits for its turn. The upstream's end may come meanwhile. */
  #isPassing = false;

  /** @param inner connected and paused; it ends with this one */
  constructor(
    private readonly inner: Socket,
    private readonly cap: TunnelCap,
  ) {
    super({ allowHalfOpen: true });
    // What a socket reads from its handle, or writes to it.
    Object.defineProperties(this, {
      bytesRead: { get: () => inner.bytesRead },
      bytesWritten: { get: () => inner.bytesWritten },
      // Without one of TCP, there is no reset.
      remoteAddress: { get: () => (inner instanceof TLSSocket ? undefined : inner.remoteAddress) },
      _writev: { value: null },
    });
    inner.on('data', (chunk: Buffer) => {
      inner.pause();
      this.#pass(chunk);
    });
    inner.on('end', () => {
      this.#hasEnded = true;
      if (!this.#isPassing) this.push(null);
    });
    inner.on('drain', () => this.#drained());
    inner.on('error', (error) => this.destroy(error));
    // Its end has been passed on; else it broke.
    inner.on('close', () => this.#hasEnded || this.destroy());
    if (inner.destroyed) this.destroy();
  }

  override _read(): void {
    if (this.#isReading) return;
    this.#isReading = true;
    this.inner.resume();
  }

  /** Passes on what the upstream has sent, in turns, and reads on once it has passed and is wanted. */
  #pass(rest: Buffer): void {
    const { up } = this.cap;
    const piece = rest.subarray(0, up?.turnBytes);
    this.#isPassing = true;
    const go = () => {
      if (this.destroyed) return;
      const isWanted = this.push(piece);
      if (piece.length < rest.length) return this.#pass(rest.subarray(piece.length));
      this.#isPassing = false;
      if (this.#hasEnded) this.push(null);
      else if (isWanted) this.inner.resume();
      else this.#isReading = false;
    };
    if (up === null) go();
    else this.#giveUp.read = up.take(piece.length, go);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    // Without a handle, nothing else says that the connection is in use.
    if (this.timeout) this.setTimeout(this.timeout);
    const { down } = this.cap;
    const piece = chunk.subarray(0, down?.turnBytes);
    const next = () => {
      if (piece.length < chunk.length) this._write(chunk.subarray(piece.length), _encoding, done);
      else done();
    };
    const go = () => {
      if (this.destroyed) return;
      if (this.inner.write(piece)) next();
      else this.#onDrain = next;
    };
    if (down === null) go();
    else this.#giveUp.write = down.take(piece.length, go);
  }

  #drained(): void {
    const next = this.#onDrain;
    this.#onDrain = null;
    next?.();
  }

  override _final(done: Done): void {
    this.inner.end(done);
  }

  override resetAndDestroy(): this {
    this.inner.resetAndDestroy();
    return this.destroy();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#giveUp.read();
    this.#giveUp.write();
    this.inner.destroy();
    done(error);
    // Streams leave this to sockets, after an error.
    process.nextTick(() => this.emit('close', error !== null));
  }
}
