import type { z } from 'zod';
import { hasNoDomain, signInOrigin } from '../../gateway/endpoints/domain-names.ts';
import type { Row, Store } from '../../gateway/offline/command-store.ts';
import {
  addPerson,
  endSignIns,
  type IssuedPersonLink,
  issuePersonLink,
  issuerBelow,
  LINK_HOURS,
  NEEDS_DOMAIN_FOR_PEOPLE,
  removePerson,
} from '../../gateway/sign-in/manage-sign-ins.ts';
import { OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import type { Endpoint } from '../../management/resources/endpoint.ts';
import { PersonCreate, PersonUpdate } from '../../management/resources/person.ts';
import { refusalOf } from '../../management/resources/refusal.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, table } from '../output.ts';
import { withStore } from '../settings-place.ts';
import { withGateway } from './running-gateway.ts';

export interface AddPersonOptions {
  name?: string;
  group?: string[];
  dashboard?: boolean;
  json?: boolean;
}

type Place = Pick<GatewayServerSettings, 'apiUrl' | 'domain' | 'httpsPort' | 'ip'>;

/**
 * Adds a person, and prints the link by which they choose how to sign in.
 *
 * @throws {OperatorError} exit code 2 for an invalid person, or one who is there already
 */
export async function addGatewayPerson(
  store: Store,
  place: Place,
  email: string,
  { name, group: groups, dashboard, json }: AddPersonOptions,
): Promise<void> {
  requireDomain(place);
  const person = valid(PersonCreate, { email, name, groups, dashboard });
  const { id, link } = await store.database.write(() => {
    const row = addedOnce(store, person);
    return { id: row.id, link: issuePersonLink(store, row.id) };
  });
  const shown = shownLink(place, link);
  if (json) return void print(jsonText({ id, ...person, ...shown }));
  print(shown.link);
  note(
    `Send it to ${person.email}, who then chooses a password or passkey. It works once, within ${LINK_HOURS} hours.`,
  );
}

/** Prints all people, newest first. */
export function listPeople(store: Store, { json }: { json?: boolean }): void {
  const rows = store.people.where("id > '' ORDER BY id DESC", []);
  const people = rows.map(({ password_hash: _hash, ...person }) => ({
    ...person,
    passkeys: store.passkeys.ofPerson(person.id).length,
  }));
  if (json) return void print(jsonText(people));
  if (people.length === 0) {
    note(`No people. Add one with: ${ownCommand('gateway people add person@example.com')}`);
    return;
  }
  const lines = people.map(({ email, name, groups, dashboard, password_set_at, passkeys, created_at }) => [
    email,
    name,
    groups.join(','),
    dashboard ? 'yes' : 'no',
    signInWay(password_set_at !== null, passkeys),
    created_at,
  ]);
  print(table(['EMAIL', 'NAME', 'GROUPS', 'DASHBOARD', 'SIGNS IN WITH', 'ADDED'], lines));
}

function signInWay(hasPassword: boolean, passkeys: number): string {
  const ways = [...(hasPassword ? ['password'] : []), ...(passkeys > 0 ? ['passkey'] : [])];
  return ways.length === 0 ? 'nothing yet' : ways.join(', ');
}

/**
 * Prints the endpoints online at which a person may sign in.
 *
 * @throws {OperatorError} exit code 4 when there is no such person, 3 when the gateway does not run
 */
export async function listPersonEndpoints(
  settings: GatewayServerSettings,
  email: string,
  { json }: { json?: boolean },
): Promise<void> {
  const { id } = await withStore(settings, async (store) => personWith(store, email));
  const endpoints = await withGateway(settings, async (client) => {
    const all: Endpoint[] = [];
    for await (const endpoint of client.people.allEndpoints(id)) all.push(endpoint);
    return all;
  });
  if (json) return void print(jsonText(endpoints));
  if (endpoints.length === 0) return void note(`No endpoint that is online lets ${email} sign in.`);
  print(table(['URL', 'DEVICE', 'ACCESS'], endpoints.map(shownEndpoint)));
}

function shownEndpoint({ url = '', device, access = [] }: Endpoint): string[] {
  return [url, device?.name ?? '-', access.join(', ')];
}

/** Removes a person, whose sessions end at once. @throws {OperatorError} exit code 4 when there is none */
export async function dismissPerson(store: Store, place: Place, email: string): Promise<void> {
  await changePerson(store, email, ({ id }) => removePerson(store, id, issuerAt(place)));
  print(`${email} removed, and signed out everywhere`);
}

/** Prints a new one-time link. @throws {OperatorError} exit code 4 when there is no such person */
export async function linkPerson(
  store: Store,
  place: Place,
  email: string,
  { json }: { json?: boolean },
): Promise<void> {
  const shown = shownLink(place, await changePerson(store, email, ({ id }) => issuePersonLink(store, id)));
  if (json) return void print(jsonText(shown));
  print(shown.link);
  note(
    `Send it to ${email}. It works once, within ${LINK_HOURS} hours; earlier links no longer do. The old password or passkey stays valid until a new one is chosen.`,
  );
}

/** Sets the groups of a person; none removes them. @throws {OperatorError} exit code 2 or 4 */
export async function setGroups(store: Store, email: string, groups: string[]): Promise<void> {
  const changes = valid(PersonUpdate, { groups });
  await changePerson(store, email, (row) => store.people.update({ ...row, groups: changes.groups ?? [] }));
  print(`${email}: ${groups.length === 0 ? 'no groups' : groups.join(', ')}`);
}

/** Sets whether a person may use the dashboard. @throws {OperatorError} exit code 4 when there is no such person */
export async function setDashboard(store: Store, email: string, right: 'allow' | 'deny'): Promise<void> {
  const dashboard = right === 'allow';
  await changePerson(store, email, (row) => store.people.update({ ...row, dashboard }));
  print(
    `${email}: ${dashboard ? 'may use the dashboard, with all that an API key can do' : 'may not use the dashboard'}`,
  );
}

/** Ends all sessions of a person. @throws {OperatorError} exit code 4 when there is no such person */
export async function signPersonOut(store: Store, place: Place, email: string): Promise<void> {
  await changePerson(store, email, ({ id }) => endSignIns(store, { issuer: issuerAt(place), subject: id }));
  print(`${email} signed out everywhere, in all browsers`);
}

function addedOnce(store: Store, person: z.output<typeof PersonCreate>): Row<'people'> {
  if (store.people.byEmail(person.email) === null) return addPerson(store, person);
  throw new OperatorError(`${person.email} is there already; for a new link: ${ownCommand('gateway people link')}`, 2);
}

function changePerson<T>(store: Store, email: string, change: (row: Row<'people'>) => T): Promise<T> {
  return store.database.write(() => change(personWith(store, email)));
}

/** @throws {OperatorError} exit code 4 when there is no such person */
export function personWith({ people }: Store, email: string): Row<'people'> {
  const row = people.byEmail(email);
  if (row !== null) return row;
  throw new OperatorError(`no person has this email: ${ownCommand('gateway people list')} shows all`, 4);
}

function valid<S extends z.ZodType>(schema: S, sent: unknown): z.output<S> {
  const result = schema.safeParse(sent, { error: validationMessage });
  if (result.success) return result.data;
  throw new OperatorError(refusalOf(result.error).text, 2);
}

function requireDomain({ domain, ip }: Place): void {
  if (hasNoDomain({ baseDomain: domain.toLowerCase(), ip })) throw new OperatorError(NEEDS_DOMAIN_FOR_PEOPLE, 2);
}

function shownLink({ apiUrl, domain, httpsPort }: Place, { path, expires_at }: IssuedPersonLink) {
  return { link: signInOrigin(apiUrl, domain.toLowerCase(), httpsPort) + path, expires_at };
}

function issuerAt({ domain }: Place): string {
  return issuerBelow(domain.toLowerCase());
}
