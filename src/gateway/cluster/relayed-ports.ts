import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import type { PortOpener } from '../endpoints/tcp-port-allocator.ts';
import type { OnlineRow } from './online-rows.ts';

/** Keeps the ports of tcp endpoints open that are online at other nodes. */
export class RelayedPorts {
  /** Keys of rows by port. */
  readonly #rows = new Map<number, Set<string>>();

  constructor(
    private readonly opener: PortOpener,
    private readonly log: Log,
  ) {}

  /** @param isThere whether the row is online at another node, and not taken from it */
  update({ key, protocol, place, taken, view }: OnlineRow, isThere: boolean): void {
    if (protocol !== 'tcp' || !place?.startsWith('tcp ')) return;
    const { port } = view as LiveEndpoint;
    const rows = this.#rows.get(port) ?? new Set();
    const wasOpen = rows.size > 0;
    if (isThere && !taken) rows.add(key);
    else rows.delete(key);
    this.#rows.set(port, rows);
    if (rows.size === 0) this.#rows.delete(port);
    if (rows.size > 0 && !wasOpen) this.#open(port);
    if (rows.size === 0 && wasOpen) this.opener.close(port);
  }

  #open(port: number): void {
    this.opener.open(port).catch((error: unknown) => {
      this.#rows.delete(port);
      this.log.warn({ port, reason: messageOf(error) }, 'tcp port of another gateway not opened');
    });
  }
}
