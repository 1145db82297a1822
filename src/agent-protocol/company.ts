import type { Channel } from './channel.ts';
import { isGateways } from './stream-ids.ts';

const COMPANY_MS = 1000;

/** Remembers which streams of clients send little, as these suffer from bulk streams on the same connection. */
export class Company {
  #sender = 0;
  #sentAt = Number.NEGATIVE_INFINITY;

  /** The channel is about to send what it has. */
  note({ id, sendsLittle }: Channel, now: number): void {
    if (!sendsLittle || !isGateways(id)) return;
    this.#sender = id;
    this.#sentAt = now;
  }

  /** Whether another stream than the channel has sent something a moment ago. */
  of({ id }: Channel, now: number): boolean {
    return this.#sender !== id && now - this.#sentAt < COMPANY_MS;
  }
}
