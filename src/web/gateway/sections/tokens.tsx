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
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';
import { OWNER_FIELD } from './bot-users.tsx';

const text = traffic.tokens;
type Token = Pick<ApiKey, 'id' | 'description' | 'owner_id' | 'created_at'>;

const nameOf = ({ description }: Token): string => description || gateway.item.unnamed;
const ownerOf = ({ owner_id }: Token) => owner_id && <ItemLink section="bot-users" id={owner_id} />;
const rulesOf = ({ acl }: Credential) => (acl?.length ? <code>{acl.join(' ')}</code> : text.anything);
const tokenOf = ({ token }: Readonly<Record<string, unknown>>): ShownOnce | null =>
  typeof token === 'string' ? { text: token } : null;

const NAME: Column<Token> = { head: text.name, cell: (token) => <Named name={nameOf(token)} below={token.id} /> };
const OWNER: Column<Token> = {
  head: text.owner,
  cell: ({ owner_id }) => (owner_id ? <ItemName section="bot-users" id={owner_id} /> : gateway.list.none),
};
const CREATED: Column<Token> = { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> };
/** What an authtoken may bind: without a rule everything, which nobody gets by leaving a field empty. */
const RULES: readonly FormField[] = [
  {
    name: 'scope',
    label: traffic.authtokens.scope,
    kind: 'choice',
    options: (['some', 'all'] as const).map((value) => ({
      value,
      label: traffic.authtokens.scopes[value],
      hint: traffic.authtokens.scopeHints[value],
    })),
  },
  {
    name: 'acl',
    label: traffic.authtokens.rules,
    hint: traffic.authtokens.rulesHint,
    kind: 'lines',
    required: traffic.authtokens.rulesRequired,
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
  columns: [NAME, { head: text.rules, cell: rulesOf }, OWNER, CREATED],
  searchText: ({ id, description, owner_id, acl }) => [id, description, owner_id, ...(acl ?? [])].join(' '),
  empty: { title: traffic.authtokens.emptyTitle, text: traffic.authtokens.empty },
  create: {
    label: traffic.authtokens.newLabel,
    fields: [...ANNOTATION_FIELDS.slice(0, 1), ...RULES, OWNER_FIELD],
    body: ({ owner_id, ...values }) => ({ ...newAnnotations(values), ...filled({ owner_id }), acl: aclOf(values) }),
    once: tokenOf,
  },
  facts: (token) => [
    { label: text.rules, value: rulesOf(token) },
    ...optional(text.owner, ownerOf(token)),
    ...commonFacts(token),
  ],
  actions: (token) => [
    edited({
      name: 'edit',
      label: gateway.item.edit,
      method: 'PATCH',
      path: `/credentials/${token.id}`,
      form: {
        label: traffic.authtokens.edit,
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
      label: traffic.authtokens.remove.label,
      title: traffic.authtokens.remove.title(nameOf(token)),
      effects: [traffic.authtokens.remove.sessions],
      submit: traffic.authtokens.remove.submit,
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
  empty: { title: traffic.apiKeys.emptyTitle, text: traffic.apiKeys.empty },
  create: {
    label: traffic.apiKeys.newLabel,
    fields: [...ANNOTATION_FIELDS.slice(0, 1), OWNER_FIELD],
    body: ({ owner_id, ...values }) => ({ ...newAnnotations(values), ...filled({ owner_id }) }),
    once: tokenOf,
  },
  facts: (key) => [...optional(text.owner, ownerOf(key)), ...commonFacts(key)],
  actions: (key) => [
    edited({
      name: 'edit',
      label: gateway.item.edit,
      method: 'PATCH',
      path: `/api_keys/${key.id}`,
      form: {
        label: traffic.apiKeys.edit,
        fields: ANNOTATION_FIELDS,
        values: annotationValues(key),
        body: changedAnnotations,
      },
    }),
    removal({
      label: traffic.apiKeys.remove.label,
      title: traffic.apiKeys.remove.title(nameOf(key)),
      effects: [
        traffic.apiKeys.remove.programs,
        ...(session.access.value?.holder === key.id ? [traffic.apiKeys.remove.own] : []),
      ],
      submit: traffic.apiKeys.remove.submit,
      path: `/api_keys/${key.id}`,
    }),
  ],
};
