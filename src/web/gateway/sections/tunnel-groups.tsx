import type { TunnelGroupBackend } from '../../../management/resources/backend.ts';
import { Badge } from '../../ui/notice.tsx';
import { linesOfPairs, Named, Pairs } from '../cells.tsx';
import { type FormField, type FormValues, pairsOf } from '../form.tsx';
import { ANNOTATIONS, CREATED, resource } from '../resource.tsx';

const FIELDS: readonly FormField[] = [
  {
    name: 'labels',
    label: 'Labels',
    hint: 'name=value on each line. A tunnel needs all of them.',
    kind: 'lines',
    required: 'Enter at least one label, such as app=camera.',
  },
  ...ANNOTATIONS,
];
const labelsOf = ({ labels }: FormValues): object => ({ labels: pairsOf(labels) });
const nameOf = ({ labels, description }: TunnelGroupBackend): string =>
  description || linesOfPairs(labels).replaceAll('\n', ', ') || '(no labels: matches no tunnel)';
const tunnels = ({ tunnels: online }: TunnelGroupBackend) => (
  <Badge tone={online.length > 0 ? 'good' : 'warning'}>{online.length}</Badge>
);

export const tunnelGroupsSection = resource<TunnelGroupBackend>({
  name: 'tunnel-groups',
  path: '/backends/tunnel_group',
  listKey: 'backends',
  online: ['tn_'],
  tables: ['tunnel_group_backends'],
  nameOf,
  columns: [
    { head: 'Labels', cell: (group) => <Named name={nameOf(group)} below={group.id} /> },
    { head: 'Labels', cell: ({ labels }) => <Pairs of={labels} /> },
    { head: 'Tunnels online', cell: tunnels },
    CREATED,
  ],
  searchTexts: (group) => [group.id, group.description, linesOfPairs(group.labels)],
  empty: {
    title: 'No tunnel groups yet',
    text: 'A tunnel group is the backend of a TLS edge: all tunnels that agents bind under its labels.',
  },
  create: { label: 'Create tunnel group', fields: FIELDS, body: labelsOf },
  edit: {
    label: 'Edit tunnel group',
    fields: FIELDS,
    values: ({ labels }) => ({ labels: linesOfPairs(labels) }),
    body: labelsOf,
  },
  facts: (group) => [
    { label: 'Labels', value: <Pairs of={group.labels} /> },
    { label: 'Tunnels online', value: tunnels(group) },
  ],
  remove: (group) => ({
    title: `Delete the tunnel group ${nameOf(group)}?`,
    effects: ['TLS edges that use it no longer answer.'],
    submit: 'Delete tunnel group',
  }),
});
