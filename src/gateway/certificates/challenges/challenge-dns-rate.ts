import type { Clock } from '../../../lib/clock.ts';
import { clientNetwork } from '../../../lib/ip-address.ts';

const WINDOW_MS = 1000;
/** A resolver asks a handful of questions for a validation; a certificate authority asks from several networks. */
const PER_SOURCE = 50;
/** The dearest question takes a Pi about half a millisecond. */
const TOTAL = 500;

/** Bounds what the responder answers in a second, so that forged questions turn it into no amplifier. */
export class QueryRate {
  readonly #counts = new Map<string, number>();
  #total = 0;
  #windowEnds = Number.NEGATIVE_INFINITY;

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /** Whether a question from the address may still be answered; counts it. */
  allows(address: string): boolean {
    const now = this.clock.now();
    if (now >= this.#windowEnds) this.#startWindow(now);
    const source = networkOf(address);
    const count = (this.#counts.get(source) ?? 0) + 1;
    if (this.#total >= TOTAL || count > PER_SOURCE) return false;
    this.#counts.set(source, count);
    this.#total += 1;
    return true;
  }

  #startWindow(now: number): void {
    this.#counts.clear();
    this.#total = 0;
    this.#windowEnds = now + WINDOW_MS;
  }
}

/** The /24 of an IPv4 address, the /64 of an IPv6 one: who owns one address there mostly owns them all. */
function networkOf(address: string): string {
  return clientNetwork(address).replace(/^(\d+\.\d+\.\d+\.)\d+$/, '$1');
}
