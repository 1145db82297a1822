import type { ApiKey } from '../../../management/resources/api-key.ts';
import type { Credential } from '../../../management/resources/credential.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { type FormField, type FormValues, filled, linesOf, type ShownOnce } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import { ItemLink, ItemName } from '../item-link.tsx';
import type { Column, Section } from '../section.ts';
import { session } from '../session.ts';
import { OWNER_FIELD } from './bot-users.tsx';

type Token = Pick<ApiKey, 'id' | 'description' | 'owner_id' | 'created_at'>;

const nameOf = ({ description }: Token): string => description || '(no description)';
const ownerOf = ({ owner_id }: Token) => owner_id && <ItemLink section="bot-users" id={owner_id} />;
const rulesOf = ({ acl }: Credential) => (acl?.length ? <code>{acl.join(' ')}</code> : 'anything');
const tokenOf = ({ token }: Readonly<Record<string, unknown>>): ShownOnce | null =>
  typeof token === 'string' ? { text: token } : null;

const NAME: Column<Token> = { head: 'Description', cell: (token) => <Named name={nameOf(token)} below={token.id} /> };
const OWNER: Column<Token> = {
  head: 'Bot user',
  cell: ({ owner_id }) => (owner_id ? <ItemName section="bot-users" id={owner_id} /> : '–'),
};
const CREATED: Column<Token> = { head: 'Created', cell: ({ created_at }) => <Ago moment={created_at} /> };
/** What an authtoken may bind: without a rule everything, which nobody gets by leaving a field empty. */
const RULES: readonly FormField[] = [
  {
    name: 'scope',
    label: 'May bind',
    kind: 'choice',
    options: [
      { value: 'some', label: 'Some addresses', hint: 'The addresses of its rules.' },
      {
        value: 'all',
        label: 'Anything',
        hint: 'Any free address of this gateway, of all sites. For tests, or a gateway with a single user.',
      },
    ],
  },
  {
    name: 'acl',
    label: 'Rules',
    hint: 'One per line, such as bind:*.site-a.example.com.',
    kind: 'lines',
    required: 'Enter at least one rule, such as bind:*.site-a.example.com.',
    isShown: ({ scope }) => scope !== 'all',
  },
];
const aclOf = ({ scope, acl }: FormValues): string[] => (scope === 'all' ? [] : linesOf(acl));

export const authtokensSection: Section<Credential> = {
  name: 'authtokens',
  path: '/credentials',
  listKey: 'credentials',
  isLive: false,
  tables: ['credentials'],
  nameOf,
  columns: [NAME, { head: 'May bind', cell: rulesOf }, OWNER, CREATED],
  searchText: ({ id, description, owner_id, acl }) => [id, description, owner_id, ...(acl ?? [])].join(' '),
  empty: { title: 'No authtokens yet', text: 'An agent signs in with an authtoken. Give each device one of its own.' },
  create: {
    label: 'Create authtoken',
    fields: [...ANNOTATION_FIELDS.slice(0, 1), ...RULES, OWNER_FIELD],
    body: ({ owner_id, ...values }) => ({ ...newAnnotations(values), ...filled({ owner_id }), acl: aclOf(values) }),
    once: tokenOf,
  },
  facts: (token) => [
    { label: 'May bind', value: rulesOf(token) },
    ...optional('Bot user', ownerOf(token)),
    ...commonFacts(token),
  ],
  actions: (token) => [
    edited({
      name: 'edit',
      label: 'Edit',
      method: 'PATCH',
      path: `/credentials/${token.id}`,
      form: {
        label: 'Edit authtoken',
        fields: [...ANNOTATION_FIELDS, ...RULES],
        values: {
          ...annotationValues(token),
          scope: token.acl?.length ? 'some' : 'all',
          acl: (token.acl ?? []).join('\n'),
        },
        body: (values) => ({ ...changedAnnotations(values), acl: aclOf(values) }),
      },
    }),
    removal({
      label: 'Revoke',
      title: `Revoke ${nameOf(token)}?`,
      effects: ['All agents that use it are disconnected at once; their endpoints go offline.'],
      submit: 'Revoke authtoken',
      path: `/credentials/${token.id}`,
    }),
  ],
};

export const apiKeysSection: Section<ApiKey> = {
  name: 'api-keys',
  path: '/api_keys',
  listKey: 'keys',
  isLive: false,
  tables: ['api_keys'],
  nameOf,
  columns: [NAME, OWNER, CREATED],
  searchText: ({ id, description, owner_id }) => [id, description, owner_id].join(' '),
  empty: { title: 'No API keys yet', text: 'A program calls the management API with an API key.' },
  create: {
    label: 'Create API key',
    fields: [...ANNOTATION_FIELDS.slice(0, 1), OWNER_FIELD],
    body: ({ owner_id, ...values }) => ({ ...newAnnotations(values), ...filled({ owner_id }) }),
    once: tokenOf,
  },
  facts: (key) => [...optional('Bot user', ownerOf(key)), ...commonFacts(key)],
  actions: (key) => [
    edited({
      name: 'edit',
      label: 'Edit',
      method: 'PATCH',
      path: `/api_keys/${key.id}`,
      form: {
        label: 'Edit API key',
        fields: ANNOTATION_FIELDS,
        values: annotationValues(key),
        body: changedAnnotations,
      },
    }),
    removal({
      label: 'Revoke',
      title: `Revoke ${nameOf(key)}?`,
      effects: [
        'Programs that use it, and browsers that signed in with it, are refused at once.',
        ...(session.access.value?.holder === key.id ? ['You signed in with this key: you are signed out.'] : []),
      ],
      submit: 'Revoke API key',
      path: `/api_keys/${key.id}`,
    }),
  ],
};
