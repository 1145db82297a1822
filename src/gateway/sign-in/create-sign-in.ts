import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { requestPublic } from '../../traffic-policy/fetch-document.ts';
import type { SignInEnd, SignInPort } from '../../traffic-policy/ports.ts';
import type {
  Attempt,
  GatewayPeople,
  IdentityProvider,
  SignInClient,
} from '../../traffic-policy/sign-in/identity-provider.ts';
import type { Session } from '../../traffic-policy/sign-in/sign-in-session.ts';
import type { Store } from '../store/store.ts';
import { CookieSeal } from './cookie-seal.ts';
import type { recordSignIns } from './recorded-sign-ins.ts';

/** Sessions that are kept open, in all some megabytes. */
const REMEMBERED_SESSIONS = 1_000;

/** @param send reaches identity providers; `wallClock`: milliseconds since 1970 @returns the port for policies of a payer */
export function createSignIn(
  {
    box,
    endedSignIns,
    people = null,
    begin,
    signOut = () => {},
    ownerOf = String,
    onEnd = () => {},
  }: Pick<Store, 'box'> & {
    /** Those of this gateway; left out: it has none. */
    people?: GatewayPeople | null;
    endedSignIns: Pick<Store['endedSignIns'], 'before'>;
    /** Writes down a sign-in at an endpoint of a payer. */
    begin: ReturnType<typeof recordSignIns>;
    /** Ends a session; left out: only its cookie goes. */
    signOut?: (sessionId: string) => void;
    /** Whose endpoints a payer's are; left out: its own. */
    ownerOf?: (payer: string) => string;
    /** Called when somebody has signed in, or could not. */
    onEnd?: (end: SignInEnd) => void;
  },
  send = requestPublic,
  wallClock = Date.now,
): (payer: string) => SignInPort {
  const keyFor = (purpose: string) => box.keyFor(purpose);
  const providers = new IdentityProviders(send, systemClock.now);
  const shared = {
    sessions: new CookieSeal<Session>('sign-in session', keyFor, REMEMBERED_SESSIONS, wallClock),
    attempts: new CookieSeal<Attempt>('sign-in attempt', keyFor, 0, wallClock),
    people,
    endedBefore: (...of: Parameters<SignInPort['endedBefore']>) => endedSignIns.before(...of),
    signOut,
    onEnd,
  };
  return (payer) => ({
    ...shared,
    // Looked up by those who need it: agents bind hundreds of policies at once.
    get owner() {
      return ownerOf(payer);
    },
    begin: (signIn) => begin(signIn, payer),
    provider: async (client, onAsk) => client.place.people ?? providers.of(client, onAsk, payer),
  });
}

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

/** The providers of all policies. What one says of itself is kept for an hour, and longer while it does not answer. */
export class IdentityProviders {
  readonly #entries = new BoundedMap<string, Entry>(MAX_CLIENTS);

  /** @param send reaches a provider */
  constructor(
    private readonly send: typeof requestPublic,
    private readonly now: () => number,
  ) {}

  /**
   * @param onAsk called when the provider is asked how it is used
   * @param payer whose policy asks: other payers with the same client share what it is told
   * @throws {SignInFailed} when the provider does not say how it is used
   */
  of(client: SignInClient, onAsk: () => void, payer: string): Promise<IdentityProvider> {
    const { place, clientId, clientSecret } = client;
    const key = JSON.stringify([place.issuer, place.oauth !== undefined, clientId, hash('sha256', clientSecret)]);
    const known = this.#entries.get(key);
    if (known !== undefined && this.now() < known.dueAt) return known.provider;
    onAsk();
    const usable = known?.hasFailed === false ? known : null;
    const send: typeof requestPublic = (url, maxBytes, request, allowed) =>
      this.send(url, maxBytes, { ...request, parties: { owner: payer } }, allowed);
    const entry: Entry = { provider: connect(client, send), dueAt: this.now() + FRESH_MS, hasFailed: false };
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
