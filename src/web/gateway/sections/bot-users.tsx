import type { BotUser } from '../../../management/resources/bot-user.ts';
import { Badge } from '../../ui/notice.tsx';
import { confirmed } from '../action-dialogs.tsx';
import { Named } from '../cells.tsx';
import { type FormField, filled } from '../form.tsx';
import { ItemName } from '../item-link.tsx';
import { loadOptions } from '../paged-list.ts';
import { CREATED, resource } from '../resource.tsx';
import type { Action, Column } from '../section.ts';
import { api } from '../session.ts';

const NAME: FormField = { name: 'name', label: 'Name', hint: 'Optional.', kind: 'text' };
const nameOf = ({ name, id }: BotUser): string => name || id;
const state = ({ active }: BotUser) => (
  <Badge tone={active ? 'good' : 'neutral'}>{active ? 'Active' : 'Inactive'}</Badge>
);

export const botUsersSection = resource<BotUser>({
  name: 'bot-users',
  path: '/bot_users',
  nameOf,
  columns: [{ head: 'Name', cell: (bot) => <Named name={nameOf(bot)} /> }, { head: 'State', cell: state }, CREATED],
  searchTexts: ({ name, id, active }) => [name, id, active ? 'Active' : 'Inactive'],
  empty: {
    title: 'No bot users yet',
    text: 'A bot user owns the authtokens of a site, so that all of them can be blocked at once.',
  },
  create: { label: 'Create bot user', fields: [NAME], body: ({ name }) => filled({ name }) },
  facts: (bot) => [{ label: 'State', value: state(bot) }],
  edit: {
    label: 'Rename bot user',
    fields: [NAME],
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
export const OWNER: Column<{ owner_id: string | null }> = {
  head: 'Bot user',
  cell: ({ owner_id }) => (owner_id ? <ItemName section="bot-users" id={owner_id} /> : '–'),
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
