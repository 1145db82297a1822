import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { processorNow } from '../time/clock.ts';
import { runInTurn } from '../time/loop-turn.ts';
import { type TokenBucket, TokenBuckets } from '../time/token-bucket.ts';
import { clientNetwork } from './ip-address.ts';

/** Bytes of a client's handshake, which may contain a chain of certificates; usual ones have 2 to 8 KiB. */
const MAX_HANDSHAKE_BYTES = 16_384;
/** The share of a processor that the certificates of one client network may take. */
const SHARE = 0.1;
/** Milliseconds for which a network may exceed that after a pause. */
const BURST_MS = 1000;

/** Milliseconds of the processor. */
const times = new TokenBuckets({ burst: BURST_MS * SHARE, perMs: SHARE });

/**
 * A connection under TLS whose client may send certificates. OpenSSL verifies all of them, trusted or not, and its own
 * limits allow a chain that takes more than half a second. Until the handshake is complete, what the client sends is
 * limited, waits for its turn, and is charged to the client's network. Node reads other connections without JavaScript.
 */
export class MeteredConnection extends Duplex {
  readonly #network: string;
  #received = 0;
  #isMetered = true;
  /** Whether bytes wait for their turn. None are read meanwhile. */
  #isWaiting = false;
  /** The client has ended its side behind the bytes that wait. */
  #hasEnded = false;

  /** @param socket must have a listener for errors */
  constructor(private readonly socket: Socket) {
    super();
    this.#network = clientNetwork(socket.remoteAddress ?? '');
    // The owner of the TLS socket decides how the connection ends.
    socket.allowHalfOpen = true;
    socket
      .on('data', (chunk: Buffer) => this.#take(chunk))
      .on('end', () => this.#endInput())
      .on('close', () => this.destroy());
    socket.pause();
  }

  /** The handshake is complete: from now on, bytes are passed on at once. */
  trust(): void {
    this.#isMetered = false;
  }

  override _read(): void {
    if (!this.#isWaiting) this.socket.resume();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.socket.write(chunk, done);
  }

  /** What TLS has at once goes out at once: otherwise, each record waits for the one before. */
  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.socket.cork();
    for (const [at, { chunk }] of chunks.entries())
      this.socket.write(chunk, at === chunks.length - 1 ? done : undefined);
    this.socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.socket.destroy();
    done(error);
  }

  get #time(): TokenBucket {
    return times.of(this.#network, performance.now());
  }

  /** Milliseconds until the certificates of the network are paid for. */
  get #waitMs(): number {
    return this.#time.waitMs(0, performance.now());
  }

  #take(chunk: Buffer): void {
    if (!this.#isMetered) this.#pass(chunk);
    // The handshake has just begun, in its turn.
    else if (this.#received === 0) this.#passMetered(chunk);
    else {
      this.#isWaiting = true;
      this.socket.pause();
      this.#await(chunk);
    }
  }

  #endInput(): void {
    if (this.#isWaiting) this.#hasEnded = true;
    else this.push(null);
  }

  #await(chunk: Buffer): void {
    const waitMs = this.#waitMs;
    if (waitMs > 0) setTimeout(() => this.#await(chunk), waitMs).unref();
    else runInTurn(this.#network, () => this.#takeTurn(chunk));
  }

  #takeTurn(chunk: Buffer): void {
    if (this.destroyed) return;
    // Others of the network may have had their turns in between.
    if (this.#waitMs > 0) {
      this.#await(chunk);
      return;
    }
    this.#isWaiting = false;
    this.socket.resume();
    const start = processorNow();
    this.#passMetered(chunk);
    if (this.#hasEnded) this.push(null);
    this.#time.take(processorNow() - start, performance.now());
  }

  /** The first bytes of a request may follow the handshake at once. */
  #passMetered(chunk: Buffer): void {
    const rest = MAX_HANDSHAKE_BYTES - this.#received;
    this.#received += chunk.length;
    this.#pass(chunk.subarray(0, rest));
    if (chunk.length <= rest) return;
    if (this.#isMetered) this.destroy(new Error('certificates too long'));
    else this.#pass(chunk.subarray(rest));
  }

  #pass(chunk: Buffer): void {
    if (!this.push(chunk)) this.socket.pause();
  }
}
