import { systemClock } from '../../lib/time/clock.ts';
import { requestPublic } from '../../traffic-policy/fetch-document.ts';
import type { SignInEnd, SignInPort } from '../../traffic-policy/ports.ts';
import type { Attempt, GatewayPeople } from '../../traffic-policy/sign-in/identity-provider.ts';
import type { Session } from '../../traffic-policy/sign-in/session.ts';
import type { Store } from '../store/store.ts';
import { CookieSeal } from './cookie-seal.ts';
import { IdentityProviders } from './identity-providers.ts';
import type { recordSignIns } from './recorded-sign-ins.ts';

/** Sessions that are kept open, in all some megabytes. */
const REMEMBERED_SESSIONS = 1_000;

interface SignInParts extends Pick<Store, 'box'> {
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
}

/**
 * @param send reaches identity providers
 * @param wallClock milliseconds since 1970
 * @returns the port for policies of a payer
 */
export function createSignIn(
  { box, endedSignIns, people = null, begin, signOut = () => {}, ownerOf = String, onEnd = () => {} }: SignInParts,
  send = requestPublic,
  wallClock = Date.now,
): (payer: string) => SignInPort {
  const keyFor = (purpose: string) => box.keyFor(purpose);
  const providers = new IdentityProviders(send, systemClock.now);
  const shared = {
    sessions: new CookieSeal<Session>('sign-in session', keyFor, REMEMBERED_SESSIONS, wallClock),
    attempts: new CookieSeal<Attempt>('sign-in attempt', keyFor, 0, wallClock),
    people,
    provider: async (...[client, onAsk]: Parameters<SignInPort['provider']>) =>
      client.place.people ?? providers.of(client, onAsk),
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
  });
}
