import type { Duplex } from 'node:stream';
import type { ByteChannel, ByteReceiver } from '../../src/agent-protocol/byte-channel.ts';

/** Wraps any stream as a connection to an upstream. */
export class StreamChannel implements ByteChannel {
  receiver: ByteReceiver = { onData() {}, onEnd() {} };
  /** Bytes that receivers keep, of all such channels. */
  static kept = 0;
  #kept = 0;
  readonly #stream: Duplex;
  #aborted = false;

  constructor(stream: Duplex) {
    this.#stream = stream;
    let error: Error | undefined;
    const tell = (what: (receiver: ByteReceiver) => void) => {
      if (!this.#aborted) what(this.receiver);
    };
    stream
      .on('data', (bytes: Buffer) => tell((receiver) => receiver.onData(bytes)))
      .on('end', () => tell((receiver) => receiver.onEnd()))
      .on('drain', () => tell((receiver) => receiver.onDrain?.()))
      .on('error', (cause: Error) => {
        error = cause;
      })
      .on('close', () => {
        this.keep(-this.#kept);
        if (!stream.readableEnded) error ??= new Error('stream ended early');
        tell((receiver) => receiver.onClosed?.(error));
      });
  }

  /** Sends everything written in one turn of the event loop together, like one frame to an agent. */
  write(bytes: Buffer): boolean {
    this.#stream.cork();
    setImmediate(() => this.#stream.uncork());
    return this.#stream.write(bytes);
  }

  end(): void {
    this.#stream.end();
    this.#stream.once('finish', () => this.receiver.onDrain?.());
  }

  keep(bytes: number): void {
    this.#kept += bytes;
    StreamChannel.kept += bytes;
  }

  abort(): void {
    this.#aborted = true;
    this.#stream.destroy();
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }
}
