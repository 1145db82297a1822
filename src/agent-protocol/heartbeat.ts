import { randomBytes } from 'node:crypto';
import type { Channel, ChannelReceiver } from './channel.ts';
import { MuxError } from './frames.ts';

/** Answers the agent's heartbeats with the bytes they consist of. */
export class HeartbeatEcho implements ChannelReceiver {
  readonly #channel: Channel;

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  onData(payload: Buffer): void {
    // A peer that sends beats without reading the echoes uses up its window and stops there.
    if (!this.#channel.write(payload)) this.#channel.pause();
  }

  onDrain(): void {
    this.#channel.resume();
  }

  onEnd(): void {
    this.#channel.end();
  }
}

/**
 * The gateway's own heartbeat stream. It never sends FIN, which would set the SDK spinning: it ends with the connection.
 */
export class HeartbeatProbe implements ChannelReceiver {
  readonly #channel: Channel;
  #asked: Promise<boolean> | null = null;
  #answer: ((answered: boolean) => void) | null = null;

  constructor(channel: Channel) {
    this.#channel = channel;
  }

  /**
   * Sends one beat. Whoever asks while one is on its way gets its answer: several agents may want what a session has.
   *
   * @param ms milliseconds to wait
   * @returns whether the agent sent anything on this stream in time
   */
  ask(ms: number): Promise<boolean> {
    this.#asked ??= this.#beat(ms);
    return this.#asked;
  }

  #beat(ms: number): Promise<boolean> {
    this.#channel.write(randomBytes(4));
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

  onData(): void {
    this.#answer?.(true);
  }

  onEnd(): void {
    this.#channel.reset(MuxError.none);
  }

  onClosed(): void {
    this.#answer?.(false);
  }
}
