import { hash } from 'node:crypto';
import { RecentMap } from '../../lib/recent-map.ts';

/** As many as one policy can have, twice: the old ones of a policy that was changed, and the new ones. */
const MAX_ENTRIES = 256;

/**
 * What outlives a policy that is compiled anew, such as the counters of a limit: whoever has the same name
 * and the same parameters finds what was there before.
 */
export class PolicyState {
  readonly #entries = new RecentMap<string, object>(MAX_ENTRIES);
  readonly #onAdded: () => void;

  /** @param onAdded told of every entry that is new */
  constructor(onAdded = () => {}) {
    this.#onAdded = onAdded;
  }

  /** Entries that are kept. */
  get size(): number {
    return this.#entries.size;
  }

  /**
   * @param kind names the class of what is kept
   * @param identity name or place, and every parameter
   */
  keep<T extends object>(kind: new (...args: never[]) => T, identity: readonly unknown[], make: () => T): T {
    // Parameters may have any length.
    const key = hash('sha256', JSON.stringify([kind.name, ...identity]), 'base64');
    const known = this.#entries.get(key);
    const entry = known instanceof kind ? known : make();
    const before = this.#entries.size;
    this.#entries.set(key, entry);
    if (this.#entries.size > before) this.#onAdded();
    return entry;
  }
}

/** Agents come and go, and a limit that a reconnect resets would be none. */
const MAX_URLS = 10_000;
const MAX_TOTAL = 100_000;

/** The states of all endpoints of a gateway, by their URLs; those asked for longest ago are forgotten first. */
export class PolicyStates {
  readonly #states = new Map<string, PolicyState>();
  #total = 0;

  of(url: string): PolicyState {
    const state = this.#states.get(url) ?? this.#make(url);
    this.#states.delete(url);
    this.#states.set(url, state);
    if (this.#states.size > MAX_URLS) this.#forgetOldest();
    return state;
  }

  #make(url: string): PolicyState {
    const state: PolicyState = new PolicyState(() => this.#count(url, state));
    return state;
  }

  #count(url: string, state: PolicyState): void {
    // One that was forgotten belongs to its endpoint alone.
    if (this.#states.get(url) !== state) return;
    this.#total += 1;
    while (this.#total > MAX_TOTAL && this.#states.size > 1) this.#forgetOldest();
  }

  #forgetOldest(): void {
    const [oldest] = this.#states;
    if (!oldest) return;
    this.#states.delete(oldest[0]);
    this.#total -= oldest[1].size;
  }
}
