import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { RequestRate } from '../../lib/time/token-bucket.ts';
import type { BegunSignIn, SignInPort } from '../../traffic-policy/ports.ts';
import { type Store, timestamp } from '../store/store.ts';
import { endSignIns, MAX_LISTED } from './manage-sign-ins.ts';

/** Sign-ins that are being written. */
const MAX_PENDING = 100;
/** Sign-ins of a payer: each is a write to the disk, and policies choose the provider, which may sign in anybody. */
const RATE = { requests: 1_000, windowMs: 600_000 };
/** Characters of texts that providers and browsers choose. */
const MAX_TEXT = 500;

/**
 * Writes sign-ins down, for lists: one write each. @param limit of each payer
 * @returns records a sign-in at an endpoint of a payer; see {@link SignInPort.begin}
 */
export function recordSignIns(
  store: Store,
  limit = RATE,
): (signIn: BegunSignIn, payer: string) => ReturnType<SignInPort['begin']> {
  const rate = new RequestRate(limit, () => performance.now());
  let pending = 0;
  return (signIn, payer) => {
    const id = store.ids.next('as');
    if (pending >= MAX_PENDING || rate.take(payer) !== null)
      return { id, written: Promise.reject(new Error('too many sign-ins at a time')) };
    pending += 1;
    const record = () => addSignIn(store, id, signIn, payer);
    const written = store.database.write(record, null).finally(() => {
      pending -= 1;
    });
    return { id, written };
  };
}

function addSignIn(store: Store, id: string, signIn: BegunSignIn, payer: string): void {
  const { applicationUsers: users, applicationSessions: sessions, ids, now } = store;
  const { issuer, person, publicUrl, host, endpointId, clientIp, userAgent, expiresAt } = signIn;
  // A provider of the policy's author can tell anything; OpenID Connect allows 255.
  if (person.subject.length > MAX_TEXT) throw new Error("the provider's identifier of the person is too long");
  const at = now();
  const told = { email: shown(person.email), name: shown(person.name), last_login: at };
  const known = users.known(issuer, person.subject);
  const user = { ...(known ?? { id: ids.next('au'), created_at: at, issuer, subject: person.subject }), ...told };
  if (known === null) users.insert(user);
  else users.update(user);
  const session = {
    id,
    created_at: at,
    expires_at: timestamp(expiresAt),
    user_id: user.id,
    public_url: publicUrl,
    host,
    endpoint_id: endpointId,
    payer,
    ip_address: clientIp,
    user_agent: shown(userAgent),
  };
  sessions.add(session, MAX_LISTED);
}

/** Ends a session whose browser has signed out: copies of its cookie, too. One that lists do not show is not ended. */
export function signOut(store: Store, id: string, log: Log): void {
  const { database, applicationSessions: sessions, applicationUsers: users } = store;
  const row = sessions.get(id);
  const user = users.get(row?.user_id ?? '');
  if (row === null || user === null) return;
  const { issuer, subject } = user;
  database
    .write(() => endSignIns(store, { issuer, subject, session: id, payer: row.payer }), null)
    .catch((error: unknown) => {
      log.warn({ id, reason: messageOf(error) }, 'sign-out not recorded');
    });
}

/** A text of somebody else, without what a database or a terminal could not take. */
function shown(text: string): string {
  return text.slice(0, MAX_TEXT).replace(/[\p{Cc}\p{Cs}]/gu, ' ');
}
