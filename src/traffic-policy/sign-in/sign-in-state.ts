import { BoundedMap } from '../../lib/bounded-map.ts';
import type { SignedIn } from './identity-provider.ts';

const MAX_USED = 1_000;
const MAX_RENEWALS = 200;
/** Milliseconds for which requests that still have the earlier cookie get the same answer of the provider, also a failure. */
const RENEWED_MS = 30_000;

interface Renewal {
  readonly startedAt: number;
  readonly person: Promise<SignedIn>;
}

/** What an endpoint remembers of sign-ins; none of it is needed when another gateway goes on. */
export class SignInState {
  readonly #used = new BoundedMap<string, true>(MAX_USED);
  readonly #renewals = new BoundedMap<string, Renewal>(MAX_RENEWALS);

  /** @returns false when the state was used before: somebody replays a link of the provider */
  use(state: string): boolean {
    if (this.#used.has(state)) return false;
    this.#used.set(state, true);
    return true;
  }

  /**
   * Renews what is known of a session's person once for all requests that come with its cookie: a provider that replaces
   * refresh tokens takes a second use of one for a theft.
   */
  renewOnce(session: string, now: number, renew: () => Promise<SignedIn>): Promise<SignedIn> {
    const known = this.#renewals.get(session);
    if (known !== undefined && now - known.startedAt < RENEWED_MS) return known.person;
    const person = renew();
    this.#renewals.set(session, { startedAt: now, person });
    return person;
  }
}
