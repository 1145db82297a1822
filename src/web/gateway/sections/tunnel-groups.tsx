import type { TunnelGroupBackend } from '../../../management/resources/tunnel-group-backend.ts';
import { Badge } from '../../ui/notice.tsx';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, linesOfPairs, Pairs } from '../facts.tsx';
import { type FormField, pairsOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';

const FIELDS: readonly FormField[] = [
  {
    name: 'labels',
    label: 'Labels',
    hint: 'name=value on each line. A tunnel needs all of them.',
    kind: 'lines',
    required: 'Enter at least one label, such as app=camera.',
  },
  ...ANNOTATION_FIELDS,
];
const nameOf = ({ labels, description }: TunnelGroupBackend): string =>
  description || linesOfPairs(labels).replaceAll('\n', ', ') || '(no labels: matches no tunnel)';
const tunnels = ({ tunnels: online }: TunnelGroupBackend) => (
  <Badge tone={online.length > 0 ? 'good' : 'warning'}>{online.length}</Badge>
);

export const tunnelGroupsSection: Section<TunnelGroupBackend> = {
  name: 'tunnel-groups',
  path: '/backends/tunnel_group',
  listKey: 'backends',
  isLive: true,
  tables: ['tunnel_group_backends'],
  nameOf,
  columns: [
    { head: 'Labels', cell: (group) => <Named name={nameOf(group)} below={group.id} /> },
    { head: 'Labels', cell: ({ labels }) => <Pairs of={labels} /> },
    { head: 'Tunnels online', cell: tunnels },
    { head: 'Created', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (group) => [group.id, group.description, linesOfPairs(group.labels)].join(' '),
  empty: {
    title: 'No tunnel groups yet',
    text: 'A tunnel group is the backend of a TLS edge: all tunnels that agents bind under its labels.',
  },
  create: {
    label: 'Create tunnel group',
    fields: FIELDS,
    body: ({ labels, ...values }) => ({ labels: pairsOf(labels), ...newAnnotations(values) }),
  },
  facts: (group) => [
    { label: 'Labels', value: <Pairs of={group.labels} /> },
    { label: 'Tunnels online', value: tunnels(group) },
    ...commonFacts(group),
  ],
  actions: (group) => {
    const path = `/backends/tunnel_group/${group.id}`;

    return [
      edited({
        name: 'edit',
        label: 'Edit',
        method: 'PATCH',
        path,
        form: {
          label: 'Edit tunnel group',
          fields: FIELDS,
          values: { ...annotationValues(group), labels: linesOfPairs(group.labels) },
          body: ({ labels, ...values }) => ({ labels: pairsOf(labels), ...changedAnnotations(values) }),
        },
      }),
      removal({
        title: `Delete the tunnel group ${nameOf(group)}?`,
        effects: ['TLS edges that use it no longer answer.'],
        submit: 'Delete tunnel group',
        path,
      }),
    ];
  },
};
