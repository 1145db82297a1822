import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { requestPublic } from '../../traffic-policy/fetch-document.ts';
import type { IdentityProvider, SignInClient } from '../../traffic-policy/sign-in/identity-provider.ts';

/** Each takes two documents of its provider. */
const MAX_CLIENTS = 300;
const FRESH_MS = 3_600_000;
/** The delay before a provider is asked again that did not answer. */
const FAILED_MS = 10_000;

interface Entry {
  readonly provider: Promise<IdentityProvider>;
  /** When to ask the provider again how it is used. */
  dueAt: number;
  hasFailed: boolean;
}

/**
 * The providers of all policies, each with its client. What a provider says of itself is kept for an hour, and used for
 * longer while the provider does not answer.
 */
export class IdentityProviders {
  readonly #entries = new BoundedMap<string, Entry>(MAX_CLIENTS);

  /** @param send reaches a provider */
  constructor(
    private readonly send: typeof requestPublic,
    private readonly now: () => number,
  ) {}

  /**
   * @param onAsk called when the provider is asked how it is used
   * @throws {SignInFailed} when the provider does not say it
   */
  of(client: SignInClient, onAsk: () => void): Promise<IdentityProvider> {
    const { place, clientId, clientSecret } = client;
    const key = JSON.stringify([place.issuer, place.oauth !== undefined, clientId, hash('sha256', clientSecret)]);
    const known = this.#entries.get(key);
    if (known !== undefined && this.now() < known.dueAt) return known.provider;
    onAsk();
    const usable = known?.hasFailed === false ? known : null;
    const entry: Entry = { provider: connect(client, this.send), dueAt: this.now() + FRESH_MS, hasFailed: false };
    if (usable === null) this.#entries.set(key, entry);
    else usable.dueAt = entry.dueAt;
    entry.provider.then(
      () => this.#entries.set(key, entry),
      () => {
        entry.hasFailed = true;
        (usable ?? entry).dueAt = this.now() + FAILED_MS;
      },
    );
    return (usable ?? entry).provider;
  }
}

/** Loads the library with the first client that needs it. */
async function connect(client: SignInClient, send: typeof requestPublic): Promise<IdentityProvider> {
  const { connectToProvider } = await import('./open-id-client.ts');
  return connectToProvider(client, send);
}
