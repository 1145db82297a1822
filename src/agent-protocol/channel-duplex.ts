import { Duplex } from 'node:stream';
import type { ByteChannel, ByteReceiver } from './byte-channel.ts';

/** Bytes buffered for a slow reader before the agent is slowed down. */
const BUFFER = 65_536;

type Done = (error?: Error | null) => void;

/** A connection to an upstream as a stream, for what is merely piped: upgraded connections and raw TCP. */
export class ChannelDuplex extends Duplex implements ByteReceiver {
  readonly #channel: ByteChannel;
  #whenSent: Done | null = null;

  /** @param channel the stream becomes its receiver */
  constructor(channel: ByteChannel) {
    super({ readableHighWaterMark: BUFFER, writableHighWaterMark: BUFFER });
    this.#channel = channel;
    channel.receiver = this;
    // Agents and clients come and go: a stream that is cut while nobody listens must not end the process.
    this.on('error', () => {});
  }

  override _read(): void {
    this.#channel.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#channel.write(chunk)) done();
    else this.#whenSent = done;
  }

  override _writev(chunks: { chunk: Buffer }[], done: Done): void {
    let room = true;
    for (const { chunk } of chunks) room = this.#channel.write(chunk);
    if (room) done();
    else this.#whenSent = done;
  }

  override _final(done: Done): void {
    this.#whenSent = done;
    this.#channel.end();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#channel.abort();
    this.#whenSent = null;
    done(error);
  }

  onData(payload: Buffer): void {
    if (!this.push(payload)) this.#channel.pause();
  }

  onEnd(): void {
    this.push(null);
  }

  onDrain(): void {
    const done = this.#whenSent;
    this.#whenSent = null;
    done?.();
  }

  onClosed(error?: Error): void {
    if (error) this.destroy(error);
  }
}
