import { clientNetwork } from '../../lib/network/ip-address.ts';

export interface PendingConnection {
  /** IP address of the peer. */
  readonly address: string;
  /** Whether nothing has arrived from it yet. */
  readonly isSilent: boolean;
  /** Whether it waits for this gateway, and not the gateway for it. */
  readonly isWaiting: boolean;
}

/**
 * Limits connections that have yet to prove useful. Beyond the limit, one is dropped: a silent one if possible, or else one
 * that the gateway waits for, and of those the oldest of the network with the most. So a crowd drops its own connections
 * rather than those of agents that take a while for their round trips. When all wait for the gateway, the newest is dropped:
 * the oldest are served next, and if they were dropped, a busy gateway would serve nobody.
 */
export class PendingConnections<T extends PendingConnection> {
  /** Oldest first, with the network of each. */
  readonly #all = new Map<T, string>();

  /** @param drop called with the connection to close, which no longer counts */
  constructor(
    private readonly limit: number,
    private readonly drop: (connection: T) => void,
  ) {}

  add(connection: T): void {
    // The new one is not compared: it had no time to send anything.
    const surplus = this.#all.size >= this.limit ? this.#leastPromising() : null;
    this.#all.set(connection, clientNetwork(connection.address));
    if (surplus === null) return;
    this.#all.delete(surplus);
    this.drop(surplus);
  }

  delete(connection: T): void {
    this.#all.delete(connection);
  }

  #leastPromising(): T | null {
    const all = [...this.#all];
    const silent = all.filter(([{ isSilent }]) => isSilent);
    const awaited = all.filter(([{ isWaiting }]) => !isWaiting);
    const candidates = [silent, awaited].find(({ length }) => length > 0) ?? all.reverse();
    const sizes = new Map<string, number>();
    for (const [, network] of candidates) sizes.set(network, (sizes.get(network) ?? 0) + 1);
    const largest = Math.max(...sizes.values());
    return candidates.find(([, network]) => sizes.get(network) === largest)?.[0] ?? null;
  }
}
