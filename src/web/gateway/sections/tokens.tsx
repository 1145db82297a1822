import type { ApiKey } from '../../../management/resources/api-key.ts';
import type { Credential } from '../../../management/resources/credential.ts';
import { Ago, Id, Named } from '../cells.tsx';
import { confirmed } from '../confirm-dialog.tsx';
import { type Column, type FormField, filled, linesOf, type Section } from '../section.ts';
import { api, session } from '../session.ts';
import { gateway } from '../strings.ts';

const text = gateway.tokens;
const { none } = gateway.list;
type Token = Pick<ApiKey, 'id' | 'description' | 'owner_id' | 'created_at'>;

const nameOf = ({ description }: Token): string => description || text.unnamed;

const NAME: Column<Token> = { head: text.name, cell: (token) => <Named name={nameOf(token)} /> };
const COMMON: Column<Token>[] = [
  { head: text.id, cell: ({ id }) => <Id id={id} /> },
  { head: text.owner, cell: ({ owner_id }) => <code>{owner_id ?? none}</code> },
  { head: text.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
];
const DESCRIPTION: FormField = {
  name: 'description',
  label: gateway.form.description,
  hint: gateway.form.optional,
  kind: 'text',
};
const OWNER: FormField = { name: 'owner_id', label: gateway.form.owner, hint: gateway.form.ownerHint, kind: 'text' };

export const authtokensSection: Section<Credential> = {
  name: 'authtokens',
  path: '/credentials',
  listKey: 'credentials',
  isLive: false,
  columns: [
    NAME,
    { head: text.rules, cell: ({ acl }) => (acl?.length ? <code>{acl.join(' ')}</code> : text.anything) },
    ...COMMON,
  ],
  searchText: ({ id, description, owner_id, acl }) => [id, description, owner_id, ...(acl ?? [])].join(' '),
  empty: { title: gateway.authtokens.emptyTitle, text: gateway.authtokens.empty },
  actions: (token) => [
    confirmed({
      name: 'revoke',
      label: gateway.authtokens.remove.label,
      title: gateway.authtokens.remove.title(nameOf(token)),
      effects: [gateway.authtokens.remove.sessions],
      submit: gateway.authtokens.remove.submit,
      isDestructive: true,
      run: () => api('DELETE', `/credentials/${token.id}`),
    }),
  ],
  create: {
    label: gateway.authtokens.newLabel,
    fields: [
      DESCRIPTION,
      { name: 'acl', label: gateway.authtokens.rules, hint: gateway.authtokens.rulesHint, kind: 'lines' },
      OWNER,
    ],
    body: ({ description, owner_id, acl }) => ({ ...filled({ description, owner_id }), acl: linesOf(acl) }),
  },
};

export const apiKeysSection: Section<ApiKey> = {
  name: 'api-keys',
  path: '/api_keys',
  listKey: 'keys',
  isLive: false,
  columns: [NAME, ...COMMON],
  searchText: ({ id, description, owner_id }) => [id, description, owner_id].join(' '),
  empty: { title: gateway.apiKeys.emptyTitle, text: gateway.apiKeys.empty },
  actions: (key) => [
    confirmed({
      name: 'revoke',
      label: gateway.apiKeys.remove.label,
      title: gateway.apiKeys.remove.title(nameOf(key)),
      effects: [
        gateway.apiKeys.remove.programs,
        ...(session.access.value?.holder === key.id ? [gateway.apiKeys.remove.own] : []),
      ],
      submit: gateway.apiKeys.remove.submit,
      isDestructive: true,
      run: () => api('DELETE', `/api_keys/${key.id}`),
    }),
  ],
  create: {
    label: gateway.apiKeys.newLabel,
    fields: [DESCRIPTION, OWNER],
    body: ({ description, owner_id }) => filled({ description, owner_id }),
  },
};
