import { createToken, parseToken } from '../../lib/ids.ts';
import { MAX_SESSION_MS } from '../../traffic-policy/sign-in/sign-in-session.ts';
import { signInHost } from '../endpoints/domain-names.ts';
import { issueDashboardCode } from '../store/command-access.ts';
import type { PasskeyRow, PersonLinkRow, PersonRow } from '../store/people.ts';
import { type Store, timestamp } from '../store/store.ts';
import { hashSecret, secretMatches } from '../store/tokens.ts';
import { issuerOf, PeopleProvider } from './people-provider.ts';

interface NewPerson {
  readonly email: string;
  readonly name?: string | undefined;
  readonly groups?: string[] | undefined;
  readonly dashboard?: boolean | undefined;
}

/** Why nobody can be added to a gateway without a domain: browsers would send its cookies to all ports of the address. */
export const NEEDS_DOMAIN_FOR_PEOPLE =
  'people sign in at a name of the gateway, and this one has no domain: give it one with `device-agent gateway init --domain`';

/** Adds somebody who cannot sign in yet, inside a transaction. @throws the engine's error when the email is taken */
export function addPerson(
  { people, ids, now }: Store,
  { email, name = '', groups = [], dashboard = false }: NewPerson,
): PersonRow {
  const row = { id: ids.next('prs'), created_at: now(), email, name, groups, dashboard };
  const person = { ...row, password_hash: Buffer.alloc(0), password_set_at: null };
  people.insert(person);
  return person;
}

/** What the people of a gateway belong to, in sign-ins. */
export function issuerBelow(baseDomain: string): string {
  return issuerOf(signInHost(baseDomain));
}

/** A one-time code that signs a browser in to the dashboard as a person, who may use it. Nothing is written. */
export function personDashboardCode(store: Store, baseDomain: string, { id }: PersonRow): string {
  // Later than the sign-ins of the person that were ended, which end such codes, too.
  const now = new PeopleProvider(store, signInHost(baseDomain)).signInTime(id);
  return issueDashboardCode(store.box, now, id);
}

/** Removes somebody, inside a transaction: nobody is signed in as them any longer, in lists neither. */
export function removePerson(store: Store, id: string, issuer: string): void {
  store.people.delete(id);
  endSignIns(store, { issuer, subject: id });
}

/** Hours for which a link is valid. */
export const LINK_HOURS = 72;

export interface IssuedPersonLink {
  /** Below the origin of the gateway's page for sign-in. */
  readonly path: string;
  /** RFC 3339. */
  readonly expires_at: string;
}

/** Creates a link that works once, inside a transaction; the earlier ones of the person end. */
export function issuePersonLink({ personLinks, ids, now }: Store, personId: string): IssuedPersonLink {
  personLinks.deleteOf(personId);
  const id = ids.next('plk');
  const { token, secret } = createToken(id);
  const created_at = now();
  const expires_at = timestamp(Date.parse(created_at) + LINK_HOURS * 3_600_000);
  personLinks.insert({ id, created_at, person_id: personId, secret_hash: hashSecret(secret), expires_at });
  return { path: `/link/${token}`, expires_at };
}

/** Whose link a token is of; null for one that is wrong, expired or used. */
export function personOfLink({ people, personLinks, now }: Store, token: string): PersonRow | null {
  const link = linkOf(personLinks, token);
  return link !== null && link.expires_at > now() ? people.get(link.person_id) : null;
}

export type ChosenWay =
  | { readonly password_hash: Buffer }
  | { readonly passkey: Pick<PasskeyRow, 'credential_id' | 'public_key' | 'counter' | 'name'> };

/**
 * Uses a link up, inside a transaction: the password or passkey replaces all earlier ones of the person, and their sign-ins
 * end.
 * @param issuer of people's sign-ins @returns the person; null when the link is wrong, expired or used
 */
export function usePersonLink(store: Store, token: string, issuer: string, way: ChosenWay): PersonRow | null {
  const person = personOfLink(store, token);
  if (person === null) return null;
  store.personLinks.deleteOf(person.id);
  for (const { id } of store.passkeys.ofPerson(person.id)) store.passkeys.delete(id);
  // Somebody else may have known the password before.
  store.familiarNetworks.forgetOf(person.id);
  const now = store.now();
  if ('passkey' in way) {
    store.passkeys.insert({ id: store.ids.next('psk'), created_at: now, person_id: person.id, ...way.passkey });
    store.people.update({ ...person, password_hash: Buffer.alloc(0), password_set_at: null });
  } else {
    store.people.update({ ...person, ...way, password_set_at: now });
  }
  endSignIns(store, { issuer, subject: person.id });
  return person;
}

function linkOf(personLinks: Store['personLinks'], token: string): PersonLinkRow | null {
  const parts = parseToken(token);
  const link = parts && personLinks.get(`plk_${parts.ksuid}`);
  return link && secretMatches(parts.secret, link.secret_hash) ? link : null;
}

/** Sessions that lists show, of all people. */
export const MAX_LISTED = 10_000;

/** Whose sign-ins end: those at a host, those of a person, or one session of the person, whose browser may have signed out. */
export type EndedSignIn =
  | { readonly host: string }
  | { readonly issuer: string; readonly subject: string; readonly session?: string; readonly payer?: string };

/** Ends sign-ins that have begun by now, inside a transaction: at all gateways within a second. Lists no longer show them. */
export function endSignIns(store: Store, ended: EndedSignIn): void {
  const { endedSignIns, applicationUsers: users, applicationSessions: sessions, ids, now } = store;
  const row = {
    id: ids.next('esi'),
    created_at: now(),
    host: null,
    issuer: null,
    subject: null,
    session_id: null,
    payer: null,
  };
  if ('host' in ended) {
    endedSignIns.end({ ...row, host: ended.host }, MAX_SESSION_MS);
    for (const { id } of sessions.where('host = ?', [ended.host])) sessions.forget(id);
    return;
  }
  const { issuer, subject, session = null, payer = null } = ended;
  endedSignIns.end({ ...row, issuer, subject, session_id: session, payer }, MAX_SESSION_MS);
  if (session === null) users.delete(users.known(issuer, subject)?.id ?? '');
  else sessions.forget(session);
}
