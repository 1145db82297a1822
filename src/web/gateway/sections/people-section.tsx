import type { ApplicationUser } from '../../../management/resources/application-session.ts';
import type { Endpoint } from '../../../management/resources/endpoint.ts';
import type { Person } from '../../../management/resources/person.ts';
import { accessText } from '../../ui/access-form.tsx';
import { Badge } from '../../ui/notice.tsx';
import { confirmed, edited } from '../action-dialogs.tsx';
import { Ago, dateOf, Named, optional } from '../cells.tsx';
import { type FormField, type FormValues, filled, type ShownOnce, textLines } from '../form.tsx';
import { OwnedItems } from '../item-table.tsx';
import { CREATED, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn } from '../section.ts';
import { api } from '../session.ts';
import { endpointUrl } from './endpoints-section.tsx';

const FIELDS: readonly FormField[] = [
  { name: 'name', label: 'Name', hint: 'Optional.', kind: 'text' },
  { name: 'groups', label: 'Groups', hint: 'Optional, one on each line. Policies let groups in.', kind: 'lines' },
  {
    name: 'dashboard',
    label: 'This dashboard',
    kind: 'choice',
    options: [
      { value: 'no', label: 'May not use it' },
      { value: 'yes', label: 'May use it', hint: 'They can do all that an API key can, also let others in.' },
    ],
  },
];

const bodyOf = ({ groups, dashboard }: FormValues) => ({ groups: textLines(groups), dashboard: dashboard === 'yes' });

const waysOf = ({ password_set_at, passkeys }: Person): string[] => [
  ...(password_set_at === null ? [] : ['Password']),
  ...(passkeys.length === 0 ? [] : ['Passkey']),
];
const wayText = (person: Person): string => waysOf(person).join(', ') || 'Has not chosen yet';
const way = (person: Person) => (
  <Badge tone={waysOf(person).length === 0 ? 'warning' : 'good'}>{wayText(person)}</Badge>
);

/** Endpoints at which a person may sign in; further rules of their policies can refuse requests. */
const MAY_OPEN: readonly ListColumn<Endpoint>[] = [
  { head: 'URL', cell: (endpoint) => <span class="url">{endpointUrl(endpoint)}</span> },
  { head: 'Device', cell: ({ device, type }) => device?.name ?? (type === 'cloud' ? 'Cloud' : '–') },
  { head: 'Who may come in', cell: ({ access = [], url }) => accessText(access, url) },
];

export const peopleSection = resource<Person>(RESOURCES.people, {
  name: 'people',
  title: 'People',
  tables: ['people', 'passkeys'],
  nameOf: ({ email }) => email,
  columns: [
    { head: 'Person', sort: 'email', cell: ({ email, name }) => <Named name={email} below={name} /> },
    { head: 'Groups', cell: ({ groups }) => groups.join(', ') || '–' },
    { head: 'Dashboard', cell: ({ dashboard }) => (dashboard ? 'Yes' : '–') },
    { head: 'Signs in with', cell: way },
    CREATED,
  ],
  empty: {
    title: 'No people yet',
    text: 'People sign in at tunnels whose policies have the action gateway-sign-in, and here if they may. Add a person, then send them a link.',
  },
  create: {
    label: 'Add person',
    fields: [{ name: 'email', label: 'Email', kind: 'text', required: 'Enter an email address.' }, ...FIELDS],
    body: ({ email, name, ...others }) => ({ ...filled({ email, name }), ...bodyOf(others) }),
  },
  facts: (person) => [
    ...optional('Name', person.name),
    ...optional('Groups', person.groups.join(', ')),
    {
      label: 'This dashboard',
      value: person.dashboard ? 'May use it, with all that an API key can do' : 'May not use it',
    },
    { label: 'Signs in with', value: way(person) },
    ...optional('Password since', person.password_set_at && <Ago moment={person.password_set_at} />),
    ...person.passkeys.map(({ name, created_at }) => ({
      label: 'Passkey',
      value: (
        <>
          {name}, <Ago moment={created_at} />
        </>
      ),
    })),
  ],
  edit: {
    label: 'Edit person',
    fields: FIELDS,
    values: ({ name, groups, dashboard }) => ({ name, groups: groups.join('\n'), dashboard: dashboard ? 'yes' : 'no' }),
    body: ({ name = '', ...others }) => ({ name: name.trim(), ...bodyOf(others) }),
  },
  more: (person) => (
    <OwnedItems<Endpoint>
      key={person.id}
      title="May sign in at"
      path={`/people/${person.id}/endpoints`}
      listKey="endpoints"
      section="endpoints"
      columns={MAY_OPEN}
      owner={person}
      none={<p class="hint">No endpoint that is online now lets this person sign in.</p>}
    />
  ),
  remove: ({ email }) => ({
    title: `Remove ${email}?`,
    label: 'Remove',
    effects: ['All sessions of the person end.'],
    submit: 'Remove person',
  }),
  actions: (person, { edit, remove }) => [newLink(person), ...edit, signOut(person), ...remove],
});

function newLink({ id }: Person): Action {
  return edited({
    name: 'link',
    label: 'New link',
    method: 'POST',
    path: `/people/${id}/link`,
    form: { label: 'Create link', fields: [], body: () => ({}), once: linkIn },
  });
}

/** The link for a person, from the answer to its creation. */
function linkIn({ url, expires_at }: Readonly<Record<string, unknown>>): ShownOnce | null {
  if (typeof url !== 'string' || typeof expires_at !== 'string') return null;
  const note = `Send it to the person, who then chooses a password or passkey. It works once, until ${dateOf(expires_at)}.`;
  return { text: url, qr: url, note };
}

function signOut({ id, email }: Person): Action {
  return confirmed({
    name: 'sign-out',
    label: 'Sign out',
    title: `Sign ${email} out?`,
    effects: ['All sessions of the person end, at all tunnels and here, in all browsers. They can sign in again.'],
    submit: 'Sign out everywhere',
    isDestructive: true,
    run: () => api('POST', `/people/${id}/sign_out`),
  });
}

const nameOf = ({ email, name, provider_user_id }: ApplicationUser): string => email || name || provider_user_id;

/** Who has signed in, at whichever identity provider. */
export const signInsSection = resource<ApplicationUser>(RESOURCES.applicationUsers, {
  name: 'sign-ins',
  title: 'Sign-ins',
  nameOf,
  columns: [
    { head: 'Person', sort: 'email', cell: (user) => <Named name={nameOf(user)} below={user.email && user.name} /> },
    { head: 'Identity provider', cell: ({ identity_provider }) => identity_provider.name },
    { head: 'Last sign-in', sort: 'last_login', cell: ({ last_login }) => <Ago moment={last_login} /> },
  ],
  empty: {
    title: 'Nobody has signed in',
    text: 'People sign in at endpoints whose policies require it. They are listed until they sign out, or their sessions are over.',
  },
  facts: ({ name, email, provider_user_id, identity_provider, last_login }) => [
    ...optional('Name', name),
    ...optional('Email', email),
    { label: 'Identity provider', value: <span class="url">{identity_provider.url}</span> },
    { label: 'Subject', value: <code>{provider_user_id}</code> },
    { label: 'Last sign-in', value: <Ago moment={last_login} /> },
  ],
  remove: (user) => ({
    title: `End all sessions of ${nameOf(user)}?`,
    label: 'End sessions',
    effects: ['The sessions at all endpoints end, in all browsers. Whom the provider still signs in can come back.'],
    submit: 'End all sessions',
  }),
});
