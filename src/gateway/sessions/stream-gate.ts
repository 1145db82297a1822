import type { Connection } from '../../agent-protocol/connection.ts';
import { StreamsExhausted } from '../endpoints/endpoint.ts';
import { GatedChannel, type GatedChannelObserver, type Lane } from './gated-channel.ts';

/** The SDK drops its session, with all connections, at the 513th live stream; RPCs and heartbeats count as well. */
const MAX_STREAMS = 500;
/** The SDK's accept queue holds 64 streams; beyond that it stops reading the connection. */
const MAX_OFFERED = 32;
/** A listener that nobody reads takes 64 streams; the next one blocks the whole session. */
const MAX_UNANSWERED = 56;
/**
 * The last few are for streams that carry something: an agent reacts to those, which tells that somebody reads the listener.
 * Clients who connect and say nothing would keep everybody else waiting without them.
 */
const MAX_UNANSWERED_TALKING = 62;

/**
 * Opens the proxied streams of one session, no faster than the SDK can take them. A burst waits its turn here,
 * because the SDK answers an excess by blocking or dropping the whole session.
 */
export class StreamGate implements GatedChannelObserver {
  readonly #connection: Connection;
  /** Every stream that counts, those included that were given up and that the agent has not confirmed yet. */
  readonly #counted = new Set<GatedChannel>();
  readonly #waiting = new Set<GatedChannel>();
  #offered = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Makes a stream to a listener of the agent; it opens as soon as the agent can take it.
   *
   * @param preamble type and header of the stream, sent in its first frame
   * @throws {StreamsExhausted} when the session carries as many streams as it can; Error when it or the listener is over
   */
  open(lane: Lane, preamble: Buffer): GatedChannel {
    if (lane.over) throw new Error('the listener is gone');
    if (this.#counted.size >= MAX_STREAMS) throw new StreamsExhausted();
    const channel = this.#connection.channel();
    channel.write(preamble);
    const stream = new GatedChannel(channel, lane, preamble.length, this);
    this.#counted.add(stream);
    lane.streams.add(stream);
    this.#waiting.add(stream);
    this.admit();
    if (channel.closed) throw new Error('the session has ended');
    return stream;
  }

  /** Opens what waits, as far as the limits allow. */
  admit(): void {
    for (const stream of this.#waiting) {
      if (this.#offered >= MAX_OFFERED) return;
      const { lane } = stream;
      if (!lane.ready || lane.unanswered.size >= (stream.talks ? MAX_UNANSWERED_TALKING : MAX_UNANSWERED)) continue;
      this.#waiting.delete(stream);
      stream.stage = 'offered';
      this.#offered += 1;
      lane.unanswered.add(stream);
      this.#connection.open(stream.channel);
    }
  }

  /** Ends every stream of a listener at once, for good. */
  cut(lane: Lane, reason: Error): void {
    lane.ready = false;
    lane.over = true;
    for (const stream of [...lane.streams]) stream.cut(reason);
  }

  credited(stream: GatedChannel, total: number): void {
    if (total < stream.preamble) return;
    if (total > stream.preamble) {
      this.answered(stream);
    } else if (stream.stage === 'offered') {
      stream.stage = 'accepted';
      this.#offered -= 1;
      this.admit();
    }
  }

  /** Listeners hand streams out one after another: what the agent got before this one is in somebody's hands, too. */
  answered(stream: GatedChannel): void {
    const { unanswered } = stream.lane;
    if (!unanswered.has(stream)) return;
    for (const earlier of unanswered) {
      this.#settle(earlier);
      if (earlier === stream) break;
    }
    if (this.#waiting.size > 0) this.admit();
  }

  talking(): void {
    this.admit();
  }

  gone(stream: GatedChannel): void {
    if (!this.#counted.delete(stream)) return;
    stream.lane.streams.delete(stream);
    this.#settle(stream);
    if (this.#waiting.size > 0) this.admit();
  }

  #settle(stream: GatedChannel): void {
    this.#waiting.delete(stream);
    stream.lane.unanswered.delete(stream);
    if (stream.stage === 'offered') this.#offered -= 1;
    stream.stage = 'answered';
  }
}
