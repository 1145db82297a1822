import { Duplex } from 'node:stream';
import type { ByteChannel, ByteReceiver } from './byte-channel.ts';

/** Bytes that are queued before a writer is told to wait. */
const BUFFER = 65_536;

type Done = (error?: Error | null) => void;

/** A byte channel as a Node stream, for connections that are only piped: upgraded connections and raw TCP. */
export class ChannelDuplex extends Duplex implements ByteReceiver {
  readonly #channel: ByteChannel;
  #whenSent: Done | null = null;

  constructor(channel: ByteChannel) {
    // What a slow reader leaves waits in the channel, which joins small pieces.
    super({ readableHighWaterMark: 1, writableHighWaterMark: BUFFER });
    this.#channel = channel;
    channel.receiver = this;
    // Connections break at any time: an error without a listener must not end the process.
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
