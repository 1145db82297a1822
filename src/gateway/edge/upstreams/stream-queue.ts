import { clientNetwork, hostOf } from '../../../lib/network/ip-address.ts';
import { StreamsExhausted } from '../../endpoints/online-endpoint.ts';

const POLL_MS = 20;
const NETWORKS_PER_TURN = 32;

/** @returns whether the wait is over, with a stream or without */
type Attempt = () => boolean;

/**
 * Queues requests and connections for a stream when the agent has reached its limit. Client networks take turns, and only
 * the first one of each polls for a free stream: if all did, a large queue would use up the CPU. The agent may refuse a
 * stream to one network and grant it to another that has fewer.
 */
export class StreamQueue {
  /** By network; the next one in turn is first. */
  readonly #lines = new Map<string, Set<Attempt>>();
  #timer: NodeJS.Timeout | undefined;
  /** When one was served, or the first one came. */
  #movedAt = 0;

  constructor(private readonly timeout: number) {}

  /**
   * Opens a stream now, or when it is its turn; returns a function that leaves the queue. `client` is `ip:port`, `[ip]:port`
   * for IPv6.
   * @param onFailure gets errors, and {@link StreamsExhausted} after the timeout: at once when nobody was served for half of
   * it and others of the same network are waiting
   * @param timeout milliseconds
   */
  enter<T>(
    client: string,
    open: () => T,
    onOpened: (opened: T) => void,
    onFailure: (error: unknown) => void,
    timeout = this.timeout,
  ): () => void {
    const deadline = performance.now() + timeout;
    const attempt = () => {
      let opened: T;
      try {
        opened = open();
      } catch (error) {
        if (error instanceof StreamsExhausted && performance.now() < deadline) return false;
        onFailure(error);
        return true;
      }
      this.#movedAt = performance.now();
      onOpened(opened);
      return true;
    };
    if (this.#lines.size === 0 && attempt()) return () => {};
    const network = clientNetwork(hostOf(client));
    const isFirst = !this.#lines.has(network);
    // An agent without a free stream may make room for this network.
    if (isFirst && this.#lines.size > 0 && attempt()) return () => {};
    const now = performance.now();
    if (!isFirst && now - this.#movedAt > timeout / 2) {
      onFailure(new StreamsExhausted());
      return () => {};
    }
    if (this.#lines.size === 0) this.#movedAt = now;
    const line = this.#lines.get(network) ?? new Set();
    this.#lines.set(network, line.add(attempt));
    this.#schedule();
    return () => this.#remove(network, attempt);
  }

  /** Retries now: a stream may have become free. */
  retry(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    let refused = 0;
    for (const [network, line] of this.#lines) {
      if (refused >= Math.min(NETWORKS_PER_TURN, this.#lines.size)) break;
      const [first] = line;
      // Moves to the end: a map iterates in insertion order, new entries included.
      this.#lines.delete(network);
      if (line.size > 0) this.#lines.set(network, line);
      if (first === undefined) continue;
      if (first()) {
        this.#remove(network, first);
        refused = 0;
      } else refused += 1;
    }
    if (this.#lines.size > 0) this.#schedule();
  }

  #remove(network: string, attempt: Attempt): void {
    const line = this.#lines.get(network);
    line?.delete(attempt);
    if (line?.size === 0) this.#lines.delete(network);
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => this.retry(), POLL_MS).unref();
  }
}
