import type { IdleChoice } from '../tls/connection-slots.ts';

export interface IdleClient {
  /** IP address; undefined when the connection has ended already. */
  readonly address: string | undefined;
  /** When its last request ended, in milliseconds of `performance.now()`; null while it carries one. */
  readonly idleSince: number | null;
  /** Closes it at once. */
  destroy(): void;
}

/**
 * Closes the connection that has been idle longest, to free its slot. Looks at all of them: this happens only when all slots
 * are taken, and costs much less than the handshake that follows.
 *
 * @param choice addresses of whose connections one may be closed, and the milliseconds that it must have been idle for
 * @returns false when there is none
 */
export function closeLongestIdle({ isFrom, idleFor }: IdleChoice, ...groups: Iterable<IdleClient>[]): boolean {
  let [longest, since]: [IdleClient | null, number] = [null, performance.now() - idleFor];
  for (const clients of groups) {
    for (const client of clients) {
      const { idleSince } = client;
      if (idleSince !== null && idleSince <= since && isFrom(client.address)) [longest, since] = [client, idleSince];
    }
  }
  longest?.destroy();
  return longest !== null;
}
