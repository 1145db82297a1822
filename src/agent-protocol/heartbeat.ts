import { randomBytes } from 'node:crypto';
import type { Channel, ChannelReceiver } from './channel.ts';
import { MuxError } from './frames.ts';

// Measured with `@ngrok/ngrok` 1.7.0: 4 random bytes on a stream of their own, echoed by the other side.

export class HeartbeatEcho implements ChannelReceiver {
  constructor(private readonly channel: Channel) {}

  onData(payload: Buffer): void {
    // A peer that does not read the echoes uses up its window and stops.
    if (!this.channel.write(payload)) this.channel.pause();
  }

  onDrain(): void {
    this.channel.resume();
  }

  onEnd(): void {
    this.channel.end();
  }
}

/** Sends heartbeats on a stream of our own, without FIN: an SDK then floods it with some 640,000 frames a second. */
export class HeartbeatProbe implements ChannelReceiver {
  #sent = 0;
  #echoed = 0;
  /** When the last echo came, in milliseconds of `performance.now()`. */
  echoedAt = Number.NEGATIVE_INFINITY;
  /** What waits for the echo of so many bytes, the first ones first. */
  readonly #waiting = new Map<number, (answered: boolean) => void>();

  constructor(private readonly channel: Channel) {}

  /** Sends another heartbeat. @returns whether the peer echoes it within `ms`, and so has read all that was sent before */
  ask(ms: number): Promise<boolean> {
    const beat = randomBytes(4);
    this.channel.write(beat);
    this.#sent += beat.length;
    const upTo = this.#sent;
    return new Promise((resolve) => {
      if (this.channel.closed) {
        resolve(false);
        return;
      }
      const answer = (answered: boolean) => {
        this.#waiting.delete(upTo);
        clearTimeout(timer);
        resolve(answered);
      };
      const timer = setTimeout(() => answer(false), ms);
      this.#waiting.set(upTo, answer);
    });
  }

  onData(echo: Buffer): void {
    this.#echoed += echo.length;
    this.echoedAt = performance.now();
    for (const [upTo, answer] of this.#waiting) {
      if (upTo > this.#echoed) break;
      answer(true);
    }
  }

  onEnd(): void {
    this.channel.reset(MuxError.none);
  }

  onClosed(): void {
    for (const answer of [...this.#waiting.values()]) answer(false);
  }
}

/** A client that has asked for something may wait so long for the first bytes of its answer, in milliseconds. */
const ASKED_MS = 60_000;

/** What clients do on a link. While they wait for something, both ends notice soon when it is dead. */
export class LinkUse {
  #at = Number.NEGATIVE_INFINITY;
  #isAsked = false;

  /** @param isAsked whether bytes went to the device, rather than to a client */
  note(isAsked: boolean): void {
    this.#at = performance.now();
    this.#isAsked = isAsked;
  }

  /** @param afterMs how long more bytes are expected after those for a client */
  isBusy(now: number, afterMs: number): boolean {
    return now - this.#at < (this.#isAsked ? ASKED_MS : afterMs);
  }
}
