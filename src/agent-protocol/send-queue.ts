import type { Duplex } from 'node:stream';
import type { Channel } from './channel.ts';
import { Company } from './company.ts';
import type { FrameWriter } from './frames.ts';
import { isGateways } from './stream-ids.ts';

/** Bytes in the socket's buffer at which streams have to wait. */
const OUTPUT_HIGH_WATER = 262_144;

/** The streams of a connection that have something to send. Those with little go first. */
export class SendQueue {
  readonly #ready = new Set<Channel>();
  readonly #company = new Company();

  /**
   * @param out the frames that go to the socket at the end of the turn
   * @param moveOut moves a stream to another connection if it should send there; returns whether it did
   */
  constructor(
    private readonly out: FrameWriter,
    private readonly socket: Duplex,
    private readonly moveOut: (channel: Channel, now: number) => boolean,
  ) {}

  add(channel: Channel): void {
    this.#ready.add(channel);
  }

  delete(channel: Channel): void {
    this.#ready.delete(channel);
  }

  /** Whether another stream than this one has sent something a moment ago. */
  hasCompany(channel: Channel, now: number): boolean {
    return this.#company.of(channel, now);
  }

  /**
   * Lets streams send until the socket has enough.
   *
   * @param now milliseconds of `performance.now()`
   * @returns whether the gateway had opened one of them
   */
  send(now: number): boolean {
    const little = this.#ready.size > 1 && this.#sendSome(true, now);
    return this.#sendSome(false, now) || little;
  }

  #sendSome(onlyLittle: boolean, now: number): boolean {
    let isData = false;
    const room = OUTPUT_HIGH_WATER - this.socket.writableLength;
    for (const channel of this.#ready) {
      if (this.out.length >= room) break;
      if (onlyLittle && !channel.sendsLittle) continue;
      this.#ready.delete(channel);
      if (this.moveOut(channel, now)) continue;
      this.#company.note(channel, now);
      if (channel.flushInto(this.out)) this.#ready.add(channel);
      isData ||= isGateways(channel.id);
    }
    return isData;
  }
}
