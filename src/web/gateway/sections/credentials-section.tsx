import type { BotUser } from '../../../management/resources/bot-user.ts';
import type { ApiKey, Credential } from '../../../management/resources/credential.ts';
import { Badge } from '../../ui/notice.tsx';
import { confirmed } from '../action-dialogs.tsx';
import { Named, optional } from '../cells.tsx';
import { type FormField, type FormValues, filled, type ShownOnce, textLines } from '../form.tsx';
import { ItemLink, ItemName } from '../item-link.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn } from '../section.ts';
import { api, session } from '../session.ts';

const BOT_NAME: FormField = { name: 'name', label: 'Name', hint: 'Optional.', kind: 'text' };
const botName = ({ name, id }: BotUser): string => name || id;
const botState = ({ active }: BotUser) => (
  <Badge tone={active ? 'good' : 'neutral'}>{active ? 'Active' : 'Inactive'}</Badge>
);

export const botUsersSection = resource<BotUser>(RESOURCES.botUsers, {
  name: 'bot-users',
  title: 'Bot users',
  nameOf: botName,
  columns: [{ head: 'Name', cell: (bot) => <Named name={botName(bot)} /> }, { head: 'State', cell: botState }, CREATED],
  searchTexts: ({ name, id, active }) => [name, id, active ? 'Active' : 'Inactive'],
  empty: {
    title: 'No bot users yet',
    text: 'A bot user owns the authtokens of a site, so that all of them can be blocked at once.',
  },
  create: { label: 'Create bot user', fields: [BOT_NAME], body: ({ name }) => filled({ name }) },
  facts: (bot) => [{ label: 'State', value: botState(bot) }],
  edit: {
    label: 'Rename bot user',
    fields: [BOT_NAME],
    values: ({ name }) => ({ name }),
    body: ({ name }) => ({ name: name?.trim() }),
  },
  remove: ({ id, name }) => ({
    title: `Delete ${name || id}?`,
    effects: ['A bot user that still owns authtokens, API keys or devices cannot be deleted.'],
    submit: 'Delete bot user',
  }),
  actions: (bot, { edit, remove }) => [...edit, switchOf(bot), ...remove],
});

/** The owner of an item of another list. */
export const OWNER: ListColumn<{ owner_id: string | null }> = {
  head: 'Bot user',
  cell: ({ owner_id }) => (owner_id ? <ItemName id={owner_id} /> : '–'),
};

/** The owner of what a form creates. */
export const OWNER_FIELD: FormField = {
  name: 'owner_id',
  label: 'Bot user',
  hint: 'Optional. Deactivating it blocks this token.',
  kind: 'one-of',
  load: () => loadOptions(botUsersSection, ({ active }) => active),
};

/** The action that deactivates a bot user, or activates it. */
function switchOf({ id, name, active }: BotUser): Action {
  const run = () => api('PATCH', `/bot_users/${id}`, { active: !active });
  if (active) {
    return confirmed({
      name: 'deactivate',
      label: 'Deactivate',
      title: `Deactivate ${name || id}?`,
      effects: ['All sessions of its authtokens end, and its API keys are refused, until you activate it again.'],
      submit: 'Deactivate bot user',
      isDestructive: true,
      run,
    });
  }
  return confirmed({
    name: 'activate',
    label: 'Activate',
    title: `Activate ${name || id}?`,
    effects: ['Its authtokens and API keys work again.'],
    submit: 'Activate bot user',
    isDestructive: false,
    run,
  });
}

type Token = Pick<ApiKey, 'id' | 'description' | 'owner_id' | 'created_at'>;

const nameOf = ({ description, id }: Token): string => description || id;
const ownerOf = ({ owner_id }: Token) => owner_id && <ItemLink id={owner_id} />;
const rulesOf = ({ acl }: Credential) => (acl?.length ? <code>{acl.join(' ')}</code> : 'anything');
const tokenOf = ({ token }: Readonly<Record<string, unknown>>): ShownOnce | null =>
  typeof token === 'string' ? { text: token } : null;

const NAME: ListColumn<Token> = {
  head: 'Description',
  cell: (token) => <Named name={nameOf(token)} below={token.id} />,
};
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
const aclOf = ({ scope, acl }: FormValues): string[] => (scope === 'all' ? [] : textLines(acl));

export const authtokensSection = resource<Credential>(RESOURCES.credentials, {
  name: 'authtokens',
  title: 'Authtokens',
  nameOf,
  columns: [{ ...NAME, sort: 'description' }, { head: 'May bind', cell: rulesOf }, OWNER, CREATED],
  empty: { title: 'No authtokens yet', text: 'An agent signs in with an authtoken. Give each device one of its own.' },
  create: {
    label: 'Create authtoken',
    fields: [DESCRIPTION_FIELD, ...RULES, OWNER_FIELD],
    body: ({ owner_id, ...values }) => ({ ...filled({ owner_id }), acl: aclOf(values) }),
    once: tokenOf,
  },
  facts: (token) => [{ label: 'May bind', value: rulesOf(token) }, ...optional('Bot user', ownerOf(token))],
  edit: {
    label: 'Edit authtoken',
    fields: [...ANNOTATIONS, ...RULES],
    values: ({ acl }) => ({ scope: acl?.length ? 'some' : 'all', acl: (acl ?? []).join('\n') }),
    body: (values) => ({ acl: aclOf(values) }),
  },
  remove: (token) => ({
    label: 'Revoke',
    title: `Revoke ${nameOf(token)}?`,
    effects: ['All agents that use it are disconnected at once; their endpoints go offline.'],
    submit: 'Revoke authtoken',
  }),
});

export const apiKeysSection = resource<ApiKey>(RESOURCES.apiKeys, {
  name: 'api-keys',
  title: 'API keys',
  nameOf,
  columns: [NAME, OWNER, CREATED],
  searchTexts: ({ id, description, owner_id }) => [id, description, owner_id],
  empty: { title: 'No API keys yet', text: 'A program calls the management API with an API key.' },
  create: {
    label: 'Create API key',
    fields: [DESCRIPTION_FIELD, OWNER_FIELD],
    body: ({ owner_id }) => filled({ owner_id }),
    once: tokenOf,
  },
  facts: (key) => optional('Bot user', ownerOf(key)),
  edit: { label: 'Edit API key', fields: ANNOTATIONS },
  remove: (key) => ({
    label: 'Revoke',
    title: `Revoke ${nameOf(key)}?`,
    effects: [
      'Programs that use it, and browsers that signed in with it, are refused at once.',
      ...(session.access.value?.holder === key.id ? ['You signed in with this key: you are signed out.'] : []),
    ],
    submit: 'Revoke API key',
  }),
});
