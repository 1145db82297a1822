import type { Duplex } from 'node:stream';
import type { ByteChannel, ByteReceiver } from '../../../agent-protocol/byte-channel.ts';
import { turnTime } from '../../../lib/time/loop-turn.ts';
import { GatewaySilent } from '../http/edge-errors.ts';
import type { LinkHealth } from './node-health.ts';
import type { Leg } from './other-nodes.ts';

export interface OpenedLink {
  stream: Duplex;
  leg: Leg;
  /** Ends it, and discards what has not arrived. */
  reset(): void;
}

/** A connection to another gateway as a channel, usable before it is open. */
export class LinkChannel implements ByteChannel {
  receiver: ByteReceiver = { onData() {}, onEnd() {} };
  #link: Duplex | null = null;
  #unansweredSince: number | null = null;
  #early: Buffer[] = [];
  #hasEnded = false;
  #isPaused = false;
  #aborted = false;

  /** @param opening rejects when it cannot be opened */
  constructor(
    opening: Promise<OpenedLink>,
    private readonly health: LinkHealth,
  ) {
    opening.then(
      (opened) => this.#opened(opened),
      (error: unknown) => this.#closed(error instanceof Error ? error : new Error(String(error))),
    );
  }

  write(bytes: Buffer): boolean {
    if (this.#link !== null) return this.#write(this.#link, bytes);
    this.#early.push(bytes);
    return false;
  }

  #write(link: Duplex, bytes: Buffer): boolean {
    this.#unansweredSince ??= turnTime();
    return link.write(bytes);
  }

  end(): void {
    this.#hasEnded = true;
    this.#link?.end(() => this.#drained());
  }

  abort(): void {
    this.#aborted = true;
    this.#link?.destroy();
  }

  pause(): void {
    this.#isPaused = true;
    this.#link?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#link?.resume();
  }

  #opened({ stream: link, leg, reset }: OpenedLink): void {
    link.on('error', () => {});
    if (this.#aborted) return void link.destroy();
    this.#link = link;
    let failure: Error | undefined;
    const channel = this;
    const unwatch = this.health.watch({
      ...leg,
      get unansweredSince() {
        return channel.#unansweredSince;
      },
      giveUp() {
        failure = new GatewaySilent();
        reset();
      },
    });
    link
      .on('data', (bytes: Buffer) => {
        this.#unansweredSince = null;
        if (!this.#aborted) this.receiver.onData(bytes);
      })
      .on('end', () => !this.#aborted && this.receiver.onEnd())
      .on('drain', () => this.#drained())
      .on('error', (error: Error) => {
        failure ??= error;
      })
      .on('close', () => {
        unwatch();
        if (!link.readableEnded) failure ??= new Error('the connection to the other gateway was lost');
        this.#closed(failure);
      });
    if (this.#isPaused) link.pause();
    for (const bytes of this.#early.splice(0)) this.#write(link, bytes);
    if (this.#hasEnded) link.end(() => this.#drained());
    else if (!link.writableNeedDrain) this.#drained();
  }

  #drained(): void {
    if (!this.#aborted) this.receiver.onDrain?.();
  }

  #closed(error: Error | undefined): void {
    if (!this.#aborted) this.receiver.onClosed?.(error);
  }
}
