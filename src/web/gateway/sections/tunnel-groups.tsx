import type { TunnelGroupBackend } from '../../../management/resources/tunnel-group-backend.ts';
import { Badge } from '../../ui/notice.tsx';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, linesOfPairs, Pairs } from '../facts.tsx';
import { type FormField, pairsOf } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';
import { traffic } from '../traffic-strings.ts';

const text = traffic.tunnelGroups;
const FIELDS: readonly FormField[] = [
  { name: 'labels', label: text.labels, hint: text.labelsHint, kind: 'lines', required: text.labelsRequired },
  ...ANNOTATION_FIELDS,
];
const nameOf = ({ labels, description }: TunnelGroupBackend): string =>
  description || linesOfPairs(labels).replaceAll('\n', ', ') || text.noLabels;
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
    { head: text.name, cell: (group) => <Named name={nameOf(group)} below={group.id} /> },
    { head: text.labels, cell: ({ labels }) => <Pairs of={labels} /> },
    { head: text.tunnels, cell: tunnels },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (group) => [group.id, group.description, linesOfPairs(group.labels)].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: FIELDS,
    body: ({ labels, ...values }) => ({ labels: pairsOf(labels), ...newAnnotations(values) }),
  },
  facts: (group) => [
    { label: text.labels, value: <Pairs of={group.labels} /> },
    { label: text.tunnels, value: tunnels(group) },
    ...commonFacts(group),
  ],
  actions: (group) => {
    const path = `/backends/tunnel_group/${group.id}`;
    const { title, effect, submit } = text.remove;
    return [
      edited({
        name: 'edit',
        label: gateway.item.edit,
        method: 'PATCH',
        path,
        form: {
          label: text.edit,
          fields: FIELDS,
          values: { ...annotationValues(group), labels: linesOfPairs(group.labels) },
          body: ({ labels, ...values }) => ({ labels: pairsOf(labels), ...changedAnnotations(values) }),
        },
      }),
      removal({ title: title(nameOf(group)), effects: [effect], submit, path }),
    ];
  },
};
