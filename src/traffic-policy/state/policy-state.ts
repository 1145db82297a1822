import { RecentMap } from '../../lib/recent-map.ts';

/** As many as one policy can have, twice: the old ones of a policy that was changed, and the new ones. */
const MAX_ENTRIES = 256;

/**
 * What outlives a policy that is compiled anew, such as the counters of a limit: whoever has the same name
 * and the same parameters finds what was there before.
 */
export class PolicyState {
  readonly #entries = new RecentMap<string, object>(MAX_ENTRIES);

  /**
   * @param kind names the class of what is kept
   * @param identity name or place, and every parameter
   */
  keep<T extends object>(kind: new (...args: never[]) => T, identity: readonly unknown[], make: () => T): T {
    const key = JSON.stringify([kind.name, ...identity]);
    const known = this.#entries.get(key);
    const entry = known instanceof kind ? known : make();
    this.#entries.set(key, entry);
    return entry;
  }
}

/** Agents come and go, and a limit that a reconnect resets would be none. */
const MAX_URLS = 10_000;

/** The states of all endpoints of a gateway, by their URLs; those asked for longest ago are forgotten first. */
export class PolicyStates {
  readonly #states = new RecentMap<string, PolicyState>(MAX_URLS);

  of(url: string): PolicyState {
    const state = this.#states.get(url) ?? new PolicyState();
    this.#states.set(url, state);
    return state;
  }
}
