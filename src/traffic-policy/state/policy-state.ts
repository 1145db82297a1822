import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';

/** Twice as many as one policy can have: after a change, the old and the new ones. */
const MAX_ENTRIES = 256;

/**
 * State that survives a recompilation of the policy, for example the counters of a rate limit. An entry with the same
 * name and parameters is found again.
 */
export class PolicyState {
  readonly #entries = new BoundedMap<string, object>(MAX_ENTRIES);
  readonly #onAdded: () => void;

  constructor(onAdded = () => {}) {
    this.#onAdded = onAdded;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** @param identity name or place, and every parameter */
  keep<T extends object>(kind: new (...args: never[]) => T, identity: readonly unknown[], make: () => T): T {
    // Parameters can have any length.
    const key = hash('sha256', JSON.stringify([kind.name, ...identity]), 'base64');
    const known = this.#entries.get(key);
    const entry = known instanceof kind ? known : make();
    const before = this.#entries.size;
    this.#entries.set(key, entry);
    if (this.#entries.size > before) this.#onAdded();
    return entry;
  }
}

/** A reconnecting agent must not reset the limits of its endpoints. */
const MAX_URLS = 10_000;
const MAX_TOTAL = 100_000;

/** The states of all endpoints of a gateway by URL; drops the least recently used. */
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
    // A dropped state stays with its endpoint only.
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
