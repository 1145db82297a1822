import type { OPERATIONS } from '../../../management/operations.ts';
import { endpoints } from '../../../management/resources/endpoint.ts';
import { type Person, people } from '../../../management/resources/person.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { admitting } from '../../endpoints/applications.ts';
import { hasNoDomain } from '../../endpoints/domain-names.ts';
import { foundAmong } from '../../endpoints/stored-endpoints.ts';
import {
  addPerson,
  endSignIns,
  issuePersonLink,
  issuerBelow,
  NEEDS_DOMAIN_FOR_PEOPLE,
  removePerson,
} from '../../sign-in/manage-sign-ins.ts';
import { PEOPLE_LISTED_BY, type PersonRow } from '../../store/people.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { showEndpoint } from './endpoint-actions.ts';
import { liveActions } from './online-actions.ts';
import { refusing, storedActions } from './stored-actions.ts';

/** Actions on the people of this gateway. No answer contains a hash or a key. */
export function personActions(context: ApiContext): { people: ActionsOf<typeof OPERATIONS.people> } {
  const { store, links, place, domains, live } = context;
  const { database, people: rows, passkeys } = store;
  const issuer = issuerBelow(domains.baseDomain);
  const requireDomain = () => {
    if (hasNoDomain(domains)) throw refuse(400, WRONG_VALUE, NEEDS_DOMAIN_FOR_PEOPLE);
  };
  const shown = ({ password_hash: _, ...row }: PersonRow): Person => ({
    ...row,
    uri: links.of(people, row.id),
    passkeys: passkeys.ofPerson(row.id).map(({ name, created_at }) => ({ name, created_at })),
  });
  return {
    people: {
      ...storedActions(context, { resource: people, rows, listedBy: PEOPLE_LISTED_BY, shown }),
      delete: (id, _body, caller) =>
        database.write(() => removePerson(store, found(rows.get(id), people).id, issuer), caller),
      create: (body, caller) =>
        database.write(() => {
          requireDomain();
          const duplicate = [WRONG_VALUE, 'email: another person has this address'] as const;
          return shown(refusing('UNIQUE', duplicate, () => addPerson(store, body)));
        }, caller),
      createLink: (id, _body, caller) =>
        database.write(() => {
          requireDomain();
          const { path, expires_at } = issuePersonLink(store, found(rows.get(id), people).id);
          return { url: place.signInOrigin + path, expires_at };
        }, caller),
      signOut: (id, _body, caller) =>
        database.write(() => {
          const subject = found(rows.get(id), people).id;
          endSignIns(store, { issuer, subject });
        }, caller),
      listEndpoints: (id, before, limit) => {
        const person = found(rows.get(id), people);
        const admitted = admitting(live.find, person);
        const { endpoint: get, endpointsBelow: below } = foundAmong(admitted);
        const online = { all: () => admitted, get, below };
        return liveActions(endpoints, online, (endpoint) => showEndpoint(context, endpoint)).list(before, limit, {});
      },
    },
  };
}
