/** Bytes that all clients of a port may hold together. */
const LIMIT = 16 * 1_048_576;

interface Holder {
  /** Closes the connection at once. */
  destroy(): void;
}

/**
 * Limits what clients have sent and the gateway holds unread: unfinished heads of requests, and requests behind others. Beyond
 * the limit, the connection that holds the most is closed.
 */
export class UnreadBudget {
  readonly #held = new Map<Holder, number>();
  #total = 0;

  constructor(private readonly limit = LIMIT) {}

  /** @param bytes that the connection holds now; 0 when it is closed, too */
  set(holder: Holder, bytes: number): void {
    this.#total += bytes - (this.#held.get(holder) ?? 0);
    if (bytes === 0) this.#held.delete(holder);
    else this.#held.set(holder, bytes);
    while (this.#total > this.limit) this.#closeLargest();
  }

  /** Looks at all: most requests arrive whole and are never held. */
  #closeLargest(): void {
    let [largest, most]: [Holder | null, number] = [null, 0];
    for (const [holder, bytes] of this.#held) if (bytes > most) [largest, most] = [holder, bytes];
    if (largest === null) return;
    this.set(largest, 0);
    largest.destroy();
  }
}
