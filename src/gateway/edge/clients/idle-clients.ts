export interface IdleClient {
  /** When its last request ended, in milliseconds of `performance.now()`; null while it carries one. */
  readonly idleSince: number | null;
  /** Closes it at once. */
  destroy(): void;
}

/**
 * Closes the connection that has been idle longest, to free its slot. Looks at all of them: this happens only when all slots
 * are taken, and costs much less than the handshake that follows.
 *
 * @returns false when all are busy
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
