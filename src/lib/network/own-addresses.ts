import { networkInterfaces } from 'node:os';
import { type IpAddress, parseAddress } from './ip-address.ts';

/** How long what was read counts, in milliseconds. Reading takes a tenth of one. */
const KNOWN_MS = 1_000;

/**
 * The addresses of this machine's interfaces, as they change. What is sent to one of them arrives over the loopback interface,
 * where firewalls let it through.
 */
export class OwnAddresses {
  #known: ReadonlySet<string> = new Set();
  #readAt = Number.NEGATIVE_INFINITY;

  /** @param now milliseconds that only grow */
  constructor(
    private readonly read: typeof networkInterfaces = networkInterfaces,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /**
   * @param address from `parseAddress`
   * @throws the system's error when the interfaces cannot be read
   */
  has(address: IpAddress): boolean {
    const now = this.now();
    if (now - this.#readAt >= KNOWN_MS) {
      const all = Object.values(this.read()).flatMap((addresses) => addresses ?? []);
      this.#known = new Set(all.map(({ address: text }) => String(parseAddress(text))));
      this.#readAt = now;
    }
    return this.#known.has(String(address));
  }
}
