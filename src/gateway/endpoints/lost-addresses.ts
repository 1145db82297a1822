import { EventEmitter } from 'node:events';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { coveringNames } from './domain-names.ts';
import { namePlace } from './endpoint-address.ts';
import type { ExpectedAgents, LostAddress } from './online-endpoint.ts';

/** How long an agent is expected back, in milliseconds: they need some seconds when all have lost their gateway at once. */
const LOST_MS = 10_000;
/** SDKs unbind their endpoints before they leave. So many milliseconds later, the session has ended, or it goes on. */
export const LEAVING_MS = 1_000;
/** Addresses that are remembered: more than lose their agents at once. */
const MAX_LOST = 50_000;

/**
 * Why an agent may come back soon for an endpoint that goes offline. `lost`: its session has ended, or the agent leaves in
 * order. `leaving`: an SDK has unbound it, perhaps because its program ends.
 */
export type Absence = 'lost' | 'leaving';

/**
 * Addresses that have lost their agents a moment ago. Clients wait for them, instead of being told that nobody has them. This
 * gives nobody a right to an address: any authtoken that may bind it can.
 */
export class LostAddresses extends EventEmitter<Record<'found', [place: string]>> implements ExpectedAgents {
  readonly #lost = new BoundedMap<string, LostAddress>(MAX_LOST);

  /** @param now milliseconds that only grow */
  constructor(private readonly now: () => number = () => performance.now()) {
    super();
  }

  note(address: Omit<LostAddress, 'until'>, absence: Absence): void {
    const until = this.now() + (absence === 'lost' ? LOST_MS : LEAVING_MS);
    this.#lost.set(address.place, { ...address, until });
  }

  /** The address is online again, here or at another gateway. */
  found(place: string): void {
    if (this.#lost.delete(place)) this.emit('found', place);
  }

  at(place: string): LostAddress | undefined {
    const lost = this.#lost.get(place);
    if (lost === undefined || this.now() < lost.until) return lost;
    this.#lost.delete(place);
    return undefined;
  }

  covering(port: 'http' | 'tls', host: string): LostAddress | undefined {
    if (this.#lost.size === 0) return undefined;
    for (const name of coveringNames(host)) {
      const lost = this.at(namePlace(port, name));
      if (lost) return lost;
    }
    return undefined;
  }

  /** Those whose agents are still expected. */
  all(): LostAddress[] {
    return [...this.#lost.keys()].flatMap((place) => this.at(place) ?? []);
  }
}
