import type { Channel, ChannelReceiver } from './channel.ts';

const PREFIX_LENGTH = 4;

/**
 * Reads the four-byte type that opens every stream, then passes the stream on. `@ngrok/ngrok` 1.7.0 sends the type alone
 * in the first frame.
 */
export class TypedStream implements ChannelReceiver {
  #type = 0;
  #seen = 0;

  /** @param serve creates the receiver for a stream of the given type */
  constructor(
    private readonly channel: Channel,
    private readonly serve: (type: number, channel: Channel) => ChannelReceiver,
  ) {}

  onData(payload: Buffer): void {
    let at = 0;
    while (at < payload.length && this.#seen < PREFIX_LENGTH) {
      this.#type = (this.#type << 8) | (payload[at++] as number);
      this.#seen += 1;
    }
    if (this.#seen < PREFIX_LENGTH) return;
    const receiver = this.serve(this.#type >>> 0, this.channel);
    this.channel.receiver = receiver;
    if (at < payload.length) receiver.onData(payload.subarray(at));
  }

  /** The stream ended before its type was complete. */
  onEnd(): void {
    this.channel.end();
  }
}
