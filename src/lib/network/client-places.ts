import { ClientShares } from './client-shares.ts';

/** A client gets no place, or loses it to a client of another network. */
export class NoPlaceLeft extends Error {
  constructor(places: number) {
    super(`all ${places} places are taken`);
    this.name = 'NoPlaceLeft';
  }
}

interface Place {
  readonly address: string;
  readonly end: AbortController;
}

/**
 * Places for work that clients cause. When all are taken, the network with at least two more than the client's loses its
 * newest one.
 */
export class ClientPlaces {
  readonly #shares = new ClientShares<Place>();
  #taken = 0;

  constructor(private readonly places: number) {}

  /**
   * Runs work in a place, until it has ended or is aborted: when the client leaves, when it loses its place, or by itself.
   *
   * @param address of the client
   * @param left aborts when the client leaves; left out: nobody can tell
   * @throws {NoPlaceLeft} when there is no place, or it was lost
   * @throws the reason of an abort, or the work's rejection
   */
  async run<T>(address: string, left: AbortSignal | undefined, work: (end: AbortController) => Promise<T>): Promise<T> {
    left?.throwIfAborted();
    if (this.#taken >= this.places) this.#makeRoom(address);
    const end = new AbortController();
    const place = { address, end };
    const leave = () => end.abort(left?.reason);
    this.#shares.add(address, place);
    this.#taken += 1;
    end.signal.addEventListener('abort', () => this.#giveBack(place));
    left?.addEventListener('abort', leave);
    try {
      const result = await work(end);
      end.signal.throwIfAborted();
      return result;
    } catch (error) {
      throw end.signal.aborted ? end.signal.reason : error;
    } finally {
      left?.removeEventListener('abort', leave);
      this.#giveBack(place);
    }
  }

  #makeRoom(address: string): void {
    const newest = [...this.#shares.excessFor(address)].at(-1);
    if (newest === undefined) throw new NoPlaceLeft(this.places);
    newest.end.abort(new NoPlaceLeft(this.places));
  }

  /** Happens once: a second time changes nothing. */
  #giveBack(place: Place): void {
    if (this.#shares.delete(place.address, place)) this.#taken -= 1;
  }
}
