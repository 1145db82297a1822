import type { ApplicationUser } from '../../../management/resources/application-session.ts';
import { Ago, Named, optional } from '../cells.tsx';
import { resource } from '../resource.tsx';

const nameOf = ({ email, name, provider_user_id }: ApplicationUser): string => email || name || provider_user_id;

/** Who has signed in, at whichever identity provider. */
export const signInsSection = resource<ApplicationUser>({
  name: 'sign-ins',
  path: '/app/users',
  listKey: 'application_users',
  nameOf,
  columns: [
    { head: 'Person', cell: (user) => <Named name={nameOf(user)} below={user.email && user.name} /> },
    { head: 'Identity provider', cell: ({ identity_provider }) => identity_provider.name },
    { head: 'Last sign-in', cell: ({ last_login }) => <Ago moment={last_login} /> },
  ],
  searchTexts: ({ id, email, name, provider_user_id, identity_provider }) => [
    ...[id, email, name, provider_user_id],
    ...[identity_provider.name, identity_provider.url],
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
