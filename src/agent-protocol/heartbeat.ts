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
