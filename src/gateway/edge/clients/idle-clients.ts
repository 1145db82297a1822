/** A connection that may have nothing to do. */
export interface IdleClient {
  /** Since when it has carried no request, in milliseconds of `performance.now()`; null while it carries one. */
  readonly idleSince: number | null;
  /** Ends it at once. */
  destroy(): void;
}

/**
 * Closes the connection that has been idle for longest, so that another can come in. They are all looked at: this happens
 * only where there are as many as there may be, and costs much less than the handshake that follows.
 *
 * @returns false when none is idle
 */
export function closeLongestIdle(...groups: Iterable<IdleClient>[]): boolean {
  let [longest, since]: [IdleClient | null, number] = [null, Number.POSITIVE_INFINITY];
  for (const clients of groups) {
    for (const client of clients) {
      const { idleSince } = client;
      if (idleSince !== null && idleSince < since) [longest, since] = [client, idleSince];
    }
  }
  longest?.destroy();
  return longest !== null;
}
