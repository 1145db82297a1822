import type { Duplex } from 'node:stream';
import type { Channel } from './channel.ts';
import { type FrameWriter, isGateways } from './frames.ts';

/** Bytes in the socket's buffer at which streams have to wait. */
const OUTPUT_HIGH_WATER = 262_144;

/** The streams of a connection that have something to send. Those with little go first. */
export class SendQueue {
  readonly #ready = new Set<Channel>();

  /** @param out the frames that go to the socket at the end of the turn */
  constructor(
    private readonly out: FrameWriter,
    private readonly socket: Duplex,
  ) {}

  add(channel: Channel): void {
    this.#ready.add(channel);
  }

  delete(channel: Channel): void {
    this.#ready.delete(channel);
  }

  /**
   * Lets streams send until the socket has enough.
   *
   * @returns whether the gateway had opened one of them
   */
  send(): boolean {
    const little = this.#ready.size > 1 && this.#sendSome(true);
    return this.#sendSome(false) || little;
  }

  #sendSome(onlyLittle: boolean): boolean {
    let isData = false;
    const room = OUTPUT_HIGH_WATER - this.socket.writableLength;
    for (const channel of this.#ready) {
      if (this.out.length >= room) break;
      if (onlyLittle && !channel.sendsLittle) continue;
      this.#ready.delete(channel);
      if (channel.flushInto(this.out)) this.#ready.add(channel);
      isData ||= isGateways(channel.id);
    }
    return isData;
  }
}
