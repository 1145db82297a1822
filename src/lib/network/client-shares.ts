import { clientNetwork } from './ip-address.ts';

/** What clients hold of something limited, by the network of their address, the oldest first; or what others hold, by a key. */
export class ClientShares<T> {
  readonly #shares = new Map<string, Set<T>>();

  /** @param keyOf what a share is of; left out: the network of an address */
  constructor(private readonly keyOf: (address: string) => string = clientNetwork) {}

  /**
   * @param address of the client; undefined when its connection has ended already
   * @returns the share of its network, as it changes
   */
  add(address: string | undefined, item: T): ReadonlySet<T> {
    const network = this.keyOf(address ?? '');
    const share = this.#shares.get(network) ?? new Set();
    this.#shares.set(network, share.add(item));
    return share;
  }

  /** @param address as in {@link add} @returns whether it was there */
  delete(address: string | undefined, item: T): boolean {
    const network = this.keyOf(address ?? '');
    const share = this.#shares.get(network);
    const wasThere = share?.delete(item) ?? false;
    if (share?.size === 0) this.#shares.delete(network);
    return wasThere;
  }

  /** The share of a client's own network; the address is as in {@link add}. */
  of(address: string | undefined): ReadonlySet<T> {
    return this.#shares.get(this.keyOf(address ?? '')) ?? NONE;
  }

  /** The share of the network that holds most. */
  get largest(): ReadonlySet<T> {
    let largest: ReadonlySet<T> = NONE;
    for (const share of this.#shares.values()) if (share.size > largest.size) largest = share;
    return largest;
  }

  /**
   * The share that has to give something up for another client. Looks at all: this happens only when nothing is left.
   *
   * @returns empty when no network holds at least two more than the client's
   */
  excessFor(address: string | undefined): ReadonlySet<T> {
    const own = this.of(address).size;
    const { largest } = this;
    return largest.size >= own + 2 ? largest : NONE;
  }
}

const NONE: ReadonlySet<never> = new Set();
