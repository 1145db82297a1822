import { setImmediate as nextTurn } from 'node:timers/promises';
import { ClientShares } from '../../../lib/network/client-shares.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import type { LostAddress } from '../../endpoints/online-endpoint.ts';
import type { WaitOutcome } from '../../metrics/edge-counters.ts';

/** How long a client waits at most, in milliseconds. */
export const WAIT_MS = 3_000;
/** Clients that go on in one turn of the event loop. */
const PER_TURN = 16;

interface Waiter {
  /** IP address of the client. */
  readonly address: string;
  readonly credentialId: string;
  /** Ends the wait; further calls change nothing. */
  end(outcome: WaitOutcome): void;
}

/**
 * Clients that wait for an address to come online again whose agent is expected back. When all places are taken, the client
 * network with at least two more than the new one loses its newest place; else the authtoken does for whose addresses so many
 * more wait.
 */
export class WaitingClients {
  readonly #byPlace = new Map<string, Set<Waiter>>();
  readonly #networks = new ClientShares<Waiter>();
  readonly #authtokens = new ClientShares<Waiter>((id) => id);
  readonly #waited = new WeakSet<object>();
  #isStopped = false;
  readonly #onFound = (place: string) => {
    const waiters = this.#byPlace.get(place);
    if (waiters) void letGo([...waiters]);
  };

  /** @param places clients that can wait at a time */
  constructor(
    private readonly context: { endpoints: Pick<EdgeContext['endpoints'], 'lost'> } & Pick<EdgeContext, 'counters'>,
    private readonly places: number,
  ) {}

  start(): void {
    this.context.endpoints.lost.on('found', this.#onFound);
  }

  /** Nobody waits any longer. */
  stop(): void {
    this.#isStopped = true;
    this.context.endpoints.lost.off('found', this.#onFound);
    for (const waiters of this.#byPlace.values()) for (const { end } of [...waiters]) end('unavailable');
  }

  /** Whether a request, or a connection before its handshake, has waited. */
  hasWaited(client: object): boolean {
    return this.#waited.has(client);
  }

  noteWaited(client: object): void {
    this.#waited.add(client);
  }

  /**
   * Waits until the address is online again, its agent is no longer expected, or the client leaves, for 3 s at most. The caller
   * then looks what serves the client.
   *
   * @param address IP address of the client
   * @param onLeave is given what to call when the client leaves
   * @returns false when it was in vain
   */
  async wait(
    { place, credentialId }: LostAddress,
    address: string | undefined,
    onLeave: (leave: () => void) => void,
  ): Promise<boolean> {
    const { counters, endpoints } = this.context;
    const deadline = performance.now() + WAIT_MS;
    let timer: NodeJS.Timeout | undefined;
    const outcome = await new Promise<WaitOutcome>((end) => {
      const waiter = { address: address ?? '', credentialId, end };
      if (this.#isStopped || !this.#hasRoomFor(waiter)) return end('unavailable');
      const leavePlace = this.#take(place, waiter);
      waiter.end = (outcome) => {
        clearTimeout(timer);
        leavePlace();
        end(outcome);
      };
      // It may be expected for longer by then: an SDK that has unbound its endpoints has left.
      const look = () => {
        const now = performance.now();
        const until = Math.min(deadline, endpoints.lost.at(place)?.until ?? now);
        if (until <= now) waiter.end('unavailable');
        else timer = setTimeout(look, Math.ceil(until - now));
      };
      look();
      onLeave(() => waiter.end('left'));
    });
    counters.waits[outcome] += 1;
    return outcome === 'served';
  }

  #hasRoomFor({ address, credentialId }: Waiter): boolean {
    if (this.context.counters.waiting < this.places) return true;
    const newestOf = (share: ReadonlySet<Waiter>) => [...share].at(-1);
    const newest = newestOf(this.#networks.excessFor(address)) ?? newestOf(this.#authtokens.excessFor(credentialId));
    newest?.end('unavailable');
    return newest !== undefined;
  }

  /** @returns what gives the place back, once */
  #take(place: string, waiter: Waiter): () => void {
    const { counters } = this.context;
    const { address, credentialId } = waiter;
    const waiters = this.#byPlace.get(place) ?? new Set();
    this.#byPlace.set(place, waiters.add(waiter));
    this.#networks.add(address, waiter);
    this.#authtokens.add(credentialId, waiter);
    counters.waiting += 1;
    return () => {
      if (!waiters.delete(waiter)) return;
      if (waiters.size === 0 && this.#byPlace.get(place) === waiters) this.#byPlace.delete(place);
      this.#networks.delete(address, waiter);
      this.#authtokens.delete(credentialId, waiter);
      counters.waiting -= 1;
    };
  }
}

/** Others get their turn meanwhile. */
async function letGo(waiters: readonly Waiter[]): Promise<void> {
  for (const [at, { end }] of waiters.entries()) {
    if (at % PER_TURN === 0) await nextTurn();
    end('served');
  }
}
