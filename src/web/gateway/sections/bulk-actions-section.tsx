import type { JSX } from 'preact';
import type { BulkAction } from '../../../management/resources/bulk-action.ts';
import { Badge } from '../../ui/notice.tsx';
import { linkTo } from '../../ui/router.ts';
import { confirmed } from '../action-dialogs.tsx';
import type { BulkKind } from '../bulk.tsx';
import { Ago, Named, optional, Pairs } from '../cells.tsx';
import { stateChoice } from '../filters.ts';
import { pairsOf, textLines } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { ItemTable } from '../item-table.tsx';
import { listOf } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import { type Action, type ListColumn, type Section, searchLink } from '../section.ts';
import { api } from '../session.ts';

/** What can be done with devices. */
export const DEVICE_BULK: readonly BulkKind[] = [
  {
    action: 'label',
    label: 'Change labels',
    effect: 'Other labels of these devices stay.',
    isDestructive: false,
    fields: [
      { name: 'labels', label: 'Labels that they get', hint: 'name=value on each line.', kind: 'lines' },
      { name: 'remove', label: 'Labels that they lose', hint: 'One name on each line.', kind: 'lines' },
    ],
    body: ({ labels, remove }) => ({
      ...(textLines(labels).length > 0 && { labels: pairsOf(labels) }),
      ...(textLines(remove).length > 0 && { remove_labels: textLines(remove) }),
    }),
  },
  {
    action: 'restart',
    label: 'Restart',
    effect: 'Their agents restart, a hundred a second. Endpoints go offline for seconds.',
    isDestructive: true,
  },
  {
    action: 'disconnect',
    label: 'Disconnect',
    effect: 'Their sessions end, a hundred a second, and their agents connect again.',
    isDestructive: true,
  },
  {
    action: 'approve',
    label: 'Approve',
    effect: 'Those that wait for it get authtokens for their own names.',
    isDestructive: false,
  },
  {
    action: 'rotate',
    label: 'Rotate authtokens',
    effect: 'Their sessions end, and their agents fetch other authtokens.',
    isDestructive: true,
  },
  {
    action: 'revoke',
    label: 'Revoke',
    effect: 'Their sessions end, and they cannot join again.',
    isDestructive: true,
  },
  {
    action: 'delete',
    label: 'Delete',
    effect: 'Their sessions end, and their names become free. With a valid code, they can join again.',
    isDestructive: true,
  },
];

const labelOf = ({ action }: BulkAction): string => DEVICE_BULK.find((each) => each.action === action)?.label ?? action;
const many = (count: number): string => `${count.toLocaleString('en')} ${count === 1 ? 'device' : 'devices'}`;

const STATES = { running: 'Running', finished: 'Finished', cancelled: 'Cancelled' } as const;

function state({ state: present, failed }: BulkAction): JSX.Element {
  const tone = present === 'running' ? 'busy' : present === 'cancelled' || failed > 0 ? 'warning' : 'good';
  return <Badge tone={tone}>{present === 'finished' && failed > 0 ? `${failed} failed` : STATES[present]}</Badge>;
}

const FAILURES: readonly ListColumn<BulkAction['failures'][number] & { id: string }>[] = [
  { head: 'Device', cell: ({ name, id }) => <Named name={name} below={id} /> },
  { head: 'Why', cell: ({ reason }) => reason },
];

/** What is done with many devices, and what came of it. */
export const bulkActionsSection: Section<BulkAction> = {
  ...listOf(RESOURCES.bulkActions),
  name: 'bulk-actions',
  title: 'Bulk actions',
  nameOf: (action) => `${labelOf(action)}: ${many(action.devices)}`,
  columns: [
    { head: 'What', sort: 'action', cell: (action) => <Named name={labelOf(action)} below={many(action.devices)} /> },
    { head: 'State', sort: 'state', cell: state },
    { head: 'Done', cell: ({ done, devices }) => `${done} of ${devices}` },
    { head: 'By', cell: ({ by }) => <code>{by}</code> },
    { head: 'When', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  filters: [stateChoice(STATES)],
  empty: {
    title: 'No bulk actions',
    text: 'Choose devices in their list, and what to do with all of them. What came of it stays here for 90 days.',
  },
  facts: (action) => [
    { label: 'State', value: state(action) },
    { label: 'Done', value: `${action.done} of ${action.devices}` },
    ...optional('Failed', action.failed > 0 && String(action.failed)),
    ...optional('Left', action.left > 0 && String(action.left)),
    ...optional('Ended because', action.end_reason),
    ...optional('Devices', action.filter && <Pairs of={action.filter} />),
    ...optional('Labels that they get', action.labels && <Pairs of={action.labels} />),
    ...optional('Labels that they lose', action.remove_labels?.join(', ')),
    { label: 'By', value: action.by.startsWith('ak_') ? <ItemLink id={action.by} /> : action.by },
    { label: 'Began', value: <Ago moment={action.created_at} /> },
    ...optional('Ended', action.finished_at && <Ago moment={action.finished_at} />),
    {
      label: 'Audit log',
      value: <a href={searchLink('audit-log', '', { part_of: action.id })}>What it has changed</a>,
    },
  ],
  more: ({ failures }) => (
    <section class="part" aria-labelledby="failures">
      <h3 id="failures">Failed</h3>
      {failures.length === 0 ? (
        <p class="hint">It has failed for no device.</p>
      ) : (
        <ItemTable
          title="Failed"
          columns={FAILURES}
          items={failures.map((each) => ({ ...each, id: each.device_id }))}
          section="devices"
        />
      )}
    </section>
  ),
  actions: (action) => [
    ...(action.state === 'running' ? [cancel(action)] : []),
    ...(action.state === 'finished' && action.failures.length > 0 ? [again(action)] : []),
  ],
};

function cancel({ id, left }: BulkAction): Action {
  return confirmed({
    name: 'cancel',
    label: 'Cancel',
    title: 'Cancel the rest?',
    effects: [`${many(left)} have not had their turn. What is done stays.`],
    submit: 'Cancel the rest',
    isDestructive: false,
    run: () => api('POST', `/bulk_actions/${id}/cancel`),
  });
}

/** The same with those for which it failed. */
function again({ action, labels, remove_labels, failures }: BulkAction): Action {
  return confirmed({
    name: 'again',
    label: 'Try again',
    title: 'Try again where it failed?',
    effects: [`${many(failures.length)} get another turn, by a bulk action of its own.`],
    submit: 'Try again',
    isDestructive: false,
    run: async () => {
      const { id } = await api<BulkAction>('POST', '/bulk_actions', {
        ...{ action, device_ids: failures.map(({ device_id }) => device_id) },
        ...(labels && { labels }),
        ...(remove_labels && { remove_labels }),
      });
      window.location.hash = linkTo('bulk-actions', id);
    },
  });
}
