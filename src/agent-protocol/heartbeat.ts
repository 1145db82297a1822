import { randomBytes } from 'node:crypto';
import type { Channel, ChannelReceiver } from './channel.ts';
import { MuxError } from './frames.ts';

// Measured with `@ngrok/ngrok` 1.7.0: 4 random bytes on a stream of their own, echoed by the other side.

/** Answers heartbeats by echoing their bytes. */
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

/**
 * Sends heartbeats on a stream of our own. It never sends FIN: an SDK then floods the stream with some 640,000 frames a
 * second. The stream ends with the connection.
 */
export class HeartbeatProbe implements ChannelReceiver {
  #asked: Promise<boolean> | null = null;
  #answer: ((answered: boolean) => void) | null = null;
  /** Bytes sent that have not come back yet. */
  #away = 0;

  constructor(private readonly channel: Channel) {}

  /**
   * Sends one heartbeat. Concurrent calls share its answer.
   *
   * @param ms milliseconds to wait
   * @returns whether the peer echoed it in time, and so has read all that was sent before it
   */
  ask(ms: number): Promise<boolean> {
    this.#asked ??= this.#beat(ms);
    return this.#asked;
  }

  #beat(ms: number): Promise<boolean> {
    const beat = randomBytes(4);
    this.channel.write(beat);
    this.#away += beat.length;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#answer?.(false), ms);
      this.#answer = (answered) => {
        this.#answer = null;
        this.#asked = null;
        clearTimeout(timer);
        resolve(answered);
      };
    });
  }

  onData(echo: Buffer): void {
    this.#away -= echo.length;
    if (this.#away <= 0) this.#answer?.(true);
  }

  onEnd(): void {
    this.channel.reset(MuxError.none);
  }

  onClosed(): void {
    this.#answer?.(false);
  }
}
