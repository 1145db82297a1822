import type { BotUser } from '../../../management/resources/bot-user.ts';
import { Badge } from '../../ui/notice.tsx';
import { Ago, Id, Named } from '../cells.tsx';
import { confirmed } from '../confirm-dialog.tsx';
import { filled, type Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';

const text = gateway.botUsers;

export const botUsersSection: Section<BotUser> = {
  name: 'bot-users',
  path: '/bot_users',
  listKey: 'bot_users',
  isLive: false,
  columns: [
    { head: text.name, cell: ({ name }) => <Named name={name || text.unnamed} /> },
    {
      head: text.state,
      cell: ({ active }) => <Badge tone={active ? 'good' : 'neutral'}>{active ? text.active : text.inactive}</Badge>,
    },
    { head: text.id, cell: ({ id }) => <Id id={id} /> },
    { head: text.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: ({ name, id, active }) => [name, id, active ? text.active : text.inactive].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  actions: ({ id, name, active }) => {
    const path = `/bot_users/${id}`;
    const shown = name || id;
    const change = active ? text.deactivate : text.activate;
    return [
      confirmed({
        name: active ? 'deactivate' : 'activate',
        label: change.label,
        title: change.title(shown),
        effects: [change.tokens],
        submit: change.submit,
        isDestructive: active,
        run: () => api('PATCH', path, { active: !active }),
      }),
      confirmed({
        name: 'delete',
        label: text.remove.label,
        title: text.remove.title(shown),
        effects: [text.remove.tokens],
        submit: text.remove.submit,
        isDestructive: true,
        run: () => api('DELETE', path),
      }),
    ];
  },
  create: {
    label: text.newLabel,
    fields: [{ name: 'name', label: text.name, hint: gateway.form.optional, kind: 'text' }],
    body: ({ name }) => filled({ name }),
  },
};
