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
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';

const text = traffic.botUsers;
const NAME: FormField = { name: 'name', label: text.name, hint: gateway.form.optional, kind: 'text' };
const nameOf = ({ name }: BotUser): string => name || text.unnamed;
const state = ({ active }: BotUser) => (
  <Badge tone={active ? 'good' : 'neutral'}>{active ? text.active : text.inactive}</Badge>
);

export const botUsersSection: Section<BotUser> = {
  name: 'bot-users',
  path: '/bot_users',
  listKey: 'bot_users',
  isLive: false,
  tables: ['bot_users'],
  nameOf,
  columns: [
    { head: text.name, cell: (bot) => <Named name={nameOf(bot)} /> },
    { head: text.state, cell: state },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: ({ name, id, active }) => [name, id, active ? text.active : text.inactive].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: { label: text.newLabel, fields: [NAME], body: ({ name }) => filled({ name }) },
  facts: (bot) => [{ label: text.state, value: state(bot) }, ...commonFacts(bot)],
  actions: actionsOf,
};

/** The owner of what a form creates. */
export const OWNER_FIELD: FormField = {
  name: 'owner_id',
  label: gateway.form.owner,
  hint: gateway.form.ownerHint,
  kind: 'one-of',
  load: () => loadOptions(botUsersSection, ({ active }) => active),
};

function actionsOf(bot: BotUser): Action[] {
  const { id, name, active } = bot;
  const path = `/bot_users/${id}`;
  const shown = name || id;
  const change = active ? text.deactivate : text.activate;
  return [
    edited({
      name: 'edit',
      label: gateway.item.edit,
      method: 'PATCH',
      path,
      form: { label: text.edit, fields: [NAME], values: { name }, body: (values) => ({ name: values.name?.trim() }) },
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
      title: text.remove.title(shown),
      effects: [text.remove.tokens],
      submit: text.remove.submit,
      path,
    }),
  ];
}
