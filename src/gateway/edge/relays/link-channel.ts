import type { Duplex } from 'node:stream';
import type { ByteChannel, ByteReceiver } from '../../../agent-protocol/byte-channel.ts';

/** A connection to another gateway as a channel, usable before it is open. */
export class LinkChannel implements ByteChannel {
  receiver: ByteReceiver = { onData() {}, onEnd() {} };
  #link: Duplex | null = null;
  #early: Buffer[] = [];
  #hasEnded = false;
  #isPaused = false;
  #aborted = false;

  /** @param opening rejects when it cannot be opened */
  constructor(opening: Promise<Duplex>) {
    opening.then(
      (link) => this.#opened(link),
      (error: unknown) => this.#closed(error instanceof Error ? error : new Error(String(error))),
    );
  }

  write(bytes: Buffer): boolean {
    if (this.#link !== null) return this.#link.write(bytes);
    this.#early.push(bytes);
    return false;
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

  #opened(link: Duplex): void {
    link.on('error', () => {});
    if (this.#aborted) return void link.destroy();
    this.#link = link;
    let failure: Error | undefined;
    link
      .on('data', (bytes: Buffer) => !this.#aborted && this.receiver.onData(bytes))
      .on('end', () => !this.#aborted && this.receiver.onEnd())
      .on('drain', () => this.#drained())
      .on('error', (error: Error) => {
        failure = error;
      })
      .on('close', () => {
        if (!link.readableEnded) failure ??= new Error('the connection to the other gateway was lost');
        this.#closed(failure);
      });
    if (this.#isPaused) link.pause();
    for (const bytes of this.#early.splice(0)) link.write(bytes);
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
