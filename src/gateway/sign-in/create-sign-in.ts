import { systemClock } from '../../lib/time/clock.ts';
import { requestPublic } from '../../traffic-policy/fetch-document.ts';
import type { SignInEnd, SignInPort } from '../../traffic-policy/ports.ts';
import type { Attempt } from '../../traffic-policy/sign-in/identity-provider.ts';
import { MAX_SESSION_MS, type Session } from '../../traffic-policy/sign-in/session.ts';
import type { EndedSignInsRow } from '../store/ended-sign-ins.ts';
import type { Store } from '../store/store.ts';
import { CookieSeal } from './cookie-seal.ts';
import { IdentityProviders } from './identity-providers.ts';

/** Sessions that are kept open, in all some megabytes. */
const REMEMBERED_SESSIONS = 1_000;

/**
 * @param send reaches identity providers
 * @param wallClock milliseconds since 1970
 * @param onEnd called when somebody has signed in, or could not
 */
export function createSignIn(
  { box, endedSignIns }: Pick<Store, 'box'> & { endedSignIns: Pick<Store['endedSignIns'], 'before'> },
  send = requestPublic,
  wallClock = Date.now,
  onEnd: (end: SignInEnd) => void = () => {},
): SignInPort {
  const keyFor = (purpose: string) => box.keyFor(purpose);
  const providers = new IdentityProviders(send, systemClock.now);
  return {
    sessions: new CookieSeal<Session>('sign-in session', keyFor, REMEMBERED_SESSIONS, wallClock),
    attempts: new CookieSeal<Attempt>('sign-in attempt', keyFor, 0, wallClock),
    provider: (client, onAsk) => providers.of(client, onAsk),
    endedBefore: (host, issuer, subject) => endedSignIns.before(host, issuer, subject),
    onEnd,
  };
}

/** Ends the sign-ins at a host, or those of a person, that have begun by now. */
export function endSignIns(
  { database, endedSignIns, ids, now }: Store,
  target: Pick<EndedSignInsRow, 'host' | 'issuer' | 'subject'>,
): Promise<void> {
  const end = () => endedSignIns.end({ id: ids.next('esi'), created_at: now(), ...target }, MAX_SESSION_MS);
  return database.write(end);
}
