import { clientNetwork } from '../../../lib/network/ip-address.ts';
import type { Clock } from '../../../lib/time/clock.ts';

const WINDOW_MS = 1000;
/** A validation takes a resolver a handful of queries; CAs validate from several networks. */
const PER_SOURCE = 50;
/** The most expensive query takes a Pi about 0.5 ms. */
const TOTAL = 500;

/** Limits the responses of each second, so that forged queries cannot use the server as an amplifier. */
export class QueryRate {
  readonly #counts = new Map<string, number>();
  #total = 0;
  #windowEnds = Number.NEGATIVE_INFINITY;

  constructor(private readonly clock: Pick<Clock, 'now'>) {}

  /** Whether a query from the address may be answered; counts it. */
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

/** The /24 of an IPv4 address, the /56 of an IPv6 one: one owner usually holds all of its addresses. */
function networkOf(address: string): string {
  return clientNetwork(address).replace(/^(\d+\.\d+\.\d+\.)\d+$/, '$1');
}
