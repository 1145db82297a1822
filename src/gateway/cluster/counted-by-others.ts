import type { Relays } from '../edge/relays/relays.ts';
import type { CountedElsewhere, CountedTraffic } from '../endpoints/live-view.ts';
import type { Nodes } from './nodes.ts';

/** What was said longer ago than that, before anybody looked again, is not shown. */
const STALE_MS = 10_000;

/** What the other nodes have counted. They are asked while somebody looks. */
export class CountedByOthers {
  /** By the id of the node. */
  readonly #latest = new Map<string, CountedTraffic>();
  /** Ids of nodes that have not answered the last time. */
  readonly #silent = new Set<string>();
  #isAsking = false;
  #askedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly nodes: Nodes,
    private readonly relays: Pick<Relays, 'ask'>,
  ) {}

  /** What they have answered last; begins to ask them again. */
  latest(): CountedElsewhere {
    const others = this.nodes.all.filter(({ id }) => id !== this.nodes.self);
    const now = performance.now();
    if (now - this.#askedAt > STALE_MS) this.#latest.clear();
    this.#askedAt = now;
    if (!this.#isAsking) void this.#ask(others.map(({ id }) => id));
    return {
      counted: others.flatMap(({ id }) => this.#latest.get(id) ?? []),
      missing: others.filter(({ id }) => this.#silent.has(id)).map(({ address }) => address),
    };
  }

  async #ask(ids: readonly string[]): Promise<void> {
    this.#isAsking = true;
    await Promise.all(ids.map((id) => this.#askOne(id)));
    this.#isAsking = false;
  }

  async #askOne(id: string): Promise<void> {
    const place = this.nodes.place(id);
    try {
      if (place === undefined) throw new Error('it is silent');
      this.#latest.set(id, JSON.parse(await this.relays.ask(place, 'counted')) as CountedTraffic);
      this.#silent.delete(id);
    } catch {
      // Why it does not answer is logged where it is asked.
      this.#silent.add(id);
    }
  }
}
