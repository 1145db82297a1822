import type { BotUser } from '../../../management/resources/bot-user.ts';
import { Badge } from '../../ui/notice.tsx';
import { Ago, Named } from '../cells.tsx';
import { confirmed, removal } from '../confirm-dialog.tsx';
import { commonFacts } from '../facts.tsx';
import { type FormField, filled } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import { loadOptions } from '../options.ts';
import type { Action, Section } from '../section.ts';
import { api } from '../session.ts';

const DEACTIVATE = {
  label: 'Deactivate',
  title: (name: string) => `Deactivate ${name}?`,
  tokens: 'All sessions of its authtokens end, and its API keys are refused, until you activate it again.',
  submit: 'Deactivate bot user',
} as const;
const ACTIVATE = {
  label: 'Activate',
  title: (name: string) => `Activate ${name}?`,
  tokens: 'Its authtokens and API keys work again.',
  submit: 'Activate bot user',
} as const;

const NAME: FormField = { name: 'name', label: 'Name', hint: 'Optional.', kind: 'text' };
const nameOf = ({ name }: BotUser): string => name || '(no name)';
const state = ({ active }: BotUser) => (
  <Badge tone={active ? 'good' : 'neutral'}>{active ? 'Active' : 'Inactive'}</Badge>
);

export const botUsersSection: Section<BotUser> = {
  name: 'bot-users',
  path: '/bot_users',
  listKey: 'bot_users',
  isLive: false,
  tables: ['bot_users'],
  nameOf,
  columns: [
    { head: 'Name', cell: (bot) => <Named name={nameOf(bot)} /> },
    { head: 'State', cell: state },
    { head: 'Created', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: ({ name, id, active }) => [name, id, active ? 'Active' : 'Inactive'].join(' '),
  empty: {
    title: 'No bot users yet',
    text: 'A bot user owns the authtokens of a site, so that all of them can be blocked at once.',
  },
  create: { label: 'Create bot user', fields: [NAME], body: ({ name }) => filled({ name }) },
  facts: (bot) => [{ label: 'State', value: state(bot) }, ...commonFacts(bot)],
  actions: actionsOf,
};

/** The owner of what a form creates. */
export const OWNER_FIELD: FormField = {
  name: 'owner_id',
  label: 'Bot user',
  hint: 'Optional. Deactivating it blocks this token.',
  kind: 'one-of',
  load: () => loadOptions(botUsersSection, ({ active }) => active),
};

function actionsOf(bot: BotUser): Action[] {
  const { id, name, active } = bot;
  const path = `/bot_users/${id}`;
  const shown = name || id;
  const change = active ? DEACTIVATE : ACTIVATE;
  return [
    edited({
      name: 'edit',
      label: 'Edit',
      method: 'PATCH',
      path,
      form: {
        label: 'Rename bot user',
        fields: [NAME],
        values: { name },
        body: (values) => ({ name: values.name?.trim() }),
      },
    }),
    confirmed({
      name: active ? 'deactivate' : 'activate',
      label: change.label,
      title: change.title(shown),
      effects: [change.tokens],
      submit: change.submit,
      isDestructive: active,
      run: () => api('PATCH', path, { active: !active }),
    }),
    removal({
      title: `Delete ${shown}?`,
      effects: ['A bot user that still owns authtokens, API keys or devices cannot be deleted.'],
      submit: 'Delete bot user',
      path,
    }),
  ];
}
