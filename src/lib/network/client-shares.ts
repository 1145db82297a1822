import { clientNetwork } from './ip-address.ts';

/** What clients hold of something limited, by the network of their address, the oldest first; or what others hold, by a key. */
export class ClientShares<T> {
  readonly #shares = new Map<string, Set<T>>();
  /** The shares by their size, so that finding the largest one looks at no other. */
  readonly #bySize: Set<Set<T>>[] = [];

  /** @param keyOf what a share is of; left out: the network of an address */
  constructor(private readonly keyOf: (address: string) => string = clientNetwork) {}

  /**
   * @param address of the client; undefined when its connection has ended already
   * @returns the share of its network, as it changes
   */
  add(address: string | undefined, item: T): ReadonlySet<T> {
    const network = this.keyOf(address ?? '');
    const share = this.#shares.get(network) ?? new Set();
    if (share.has(item)) return share;
    this.#shares.set(network, share);
    this.#resize(share, () => share.add(item));
    return share;
  }

  /** @param address as in {@link add} @returns whether it was there */
  delete(address: string | undefined, item: T): boolean {
    const network = this.keyOf(address ?? '');
    const share = this.#shares.get(network);
    if (!share?.has(item)) return false;
    this.#resize(share, () => share.delete(item));
    if (share.size === 0) this.#shares.delete(network);
    return true;
  }

  /** The share of a client's own network; the address is as in {@link add}. */
  of(address: string | undefined): ReadonlySet<T> {
    return this.#shares.get(this.keyOf(address ?? '')) ?? NONE;
  }

  /** The share of the network that holds most; of several, the one that has held so much for the longest. */
  get largest(): ReadonlySet<T> {
    const [largest = NONE] = this.#bySize.at(-1) ?? [];
    return largest;
  }

  /**
   * The share that has to give something up for another client.
   *
   * @returns empty when no network holds at least two more than the client's
   */
  excessFor(address: string | undefined): ReadonlySet<T> {
    const own = this.of(address).size;
    const { largest } = this;
    return largest.size >= own + 2 ? largest : NONE;
  }

  #resize(share: Set<T>, change: () => void): void {
    this.#bySize[share.size]?.delete(share);
    change();
    if (share.size > 0) {
      const equal = this.#bySize[share.size] ?? new Set();
      this.#bySize[share.size] = equal.add(share);
    }
    while (this.#bySize.at(-1)?.size === 0) this.#bySize.pop();
  }
}

const NONE: ReadonlySet<never> = new Set();
